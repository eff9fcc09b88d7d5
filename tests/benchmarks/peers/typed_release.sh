# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh

# What people type: $DEVICES (a glob) and $PATTERN come by environment, so that pkill does not find this shell.
pkill -9 -f "$PATTERN"
# shellcheck disable=SC2086 # a glob
fuser -k $DEVICES
sleep "${PAUSE:-2}"
nvidia-smi --query-gpu=index,memory.used --format=csv
