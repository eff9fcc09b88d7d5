# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh

# What an operator types, one ssh command after the other, without the time to think: $SSH (ssh and its options), $NODE (of the simulated
# node), $PORT (of the server), $PAUSE (the recipe's sleep). The pattern is written so that pkill does not find the shell that runs it.
set -u
on_node() {
    # shellcheck disable=SC2086 # several words
    $SSH 127.0.0.1 "export PATH='$NODE/bin':\"\$PATH\" HOME='$NODE/home' XDG_RUNTIME_DIR='$NODE/run'; $1"
}
on_node "systemctl --user stop sglang"
on_node "pkill -9 -f '[s]glang.launch_server.*$NODE/'; fuser -k '$NODE'/dev/nvidia[0-9]*; sleep $PAUSE; nvidia-smi --query-gpu=index,memory.used --format=csv"
on_node "systemctl --user start sglang"
until on_node "curl -sf http://127.0.0.1:$PORT/health"; do sleep 1; done
