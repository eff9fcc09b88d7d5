# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""How the status page looks: light and dark, from 320 pixels on, in print too.

Each state has a sign and a word, never a colour alone. Text has a contrast of 4.5 or more to its ground.
"""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f4f6f8; --card: #ffffff; --text: #1a2129; --soft: #525d69; --line: #d5dbe1; --track: #e4e8ec;
  --bar: #2f6fb5; --well: #17683a; --well-ground: #dff3e6; --hand: #1c5590; --hand-ground: #deebf8;
  --attention: #9a2617; --attention-ground: #fbe4e0; --unknown: #5b4600; --unknown-ground: #f8ecc4; --link: #1c5590;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12171c; --card: #1b2229; --text: #e7ecf0; --soft: #a5b1bc; --line: #343e48; --track: #303a44;
    --bar: #6aa9ea; --well: #8fdcae; --well-ground: #17352a; --hand: #a3cdf7; --hand-ground: #18324c;
    --attention: #ffb4a6; --attention-ground: #4a1f19; --unknown: #f0d585; --unknown-ground: #3d3310; --link: #a3cdf7;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 24px 16px 48px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere;
}
body > * { max-width: 1080px; margin-left: auto; margin-right: auto; }
h1 { font-size: 24px; line-height: 1.25; margin-top: 0; margin-bottom: 4px; }
h2 { font-size: 19px; line-height: 1.3; margin: 0; }
h3 { font-size: 14px; margin: 20px 0 6px; color: var(--soft); }
p { margin: 0; }
a { color: var(--link); }
a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, .number { font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 13px; }
.soft { color: var(--soft); }
.counts { display: flex; flex-wrap: wrap; gap: 8px; list-style: none; padding: 0; margin-top: 16px; }
.badge {
  display: inline-block; border-radius: 999px; padding: 1px 10px; font-size: 13px; font-weight: 600;
  white-space: nowrap;
}
.well { color: var(--well); background: var(--well-ground); }
.in_hand { color: var(--hand); background: var(--hand-ground); }
.attention { color: var(--attention); background: var(--attention-ground); }
.not_known { color: var(--unknown); background: var(--unknown-ground); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 20px;
  margin-top: 16px;
}
.title { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; justify-content: space-between; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; font-size: 14px; }
caption { text-align: left; font-weight: 600; font-size: 14px; color: var(--soft); padding: 20px 0 6px; }
th, td {
  text-align: left; vertical-align: top; padding: 7px 12px 7px 0; border-top: 1px solid var(--line);
  font-weight: 400;
}
thead th { border-top: 0; padding-top: 0; color: var(--soft); font-size: 13px; }
th:last-child, td:last-child { padding-right: 0; }
.fleet { padding-top: 14px; padding-bottom: 10px; }
.fleet caption { padding-top: 0; }
.problems { list-style: none; margin: 12px 0 0; padding: 0; }
.problems li { border-left: 4px solid var(--attention); padding: 2px 0 2px 12px; margin-top: 10px; }
.problems p + p { margin-top: 2px; }
.next { font-weight: 600; }
.notes { list-style: none; margin: 12px 0 0; padding: 0; }
.notes li { border-left: 4px solid var(--hand); padding: 2px 0 2px 12px; margin-top: 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 14px 0 0; font-size: 14px; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
.nodes th:nth-child(1) { width: 11%; }
.nodes th:nth-child(2) { width: 13%; }
.nodes th:nth-child(3) { width: 14%; }
.nodes th:nth-child(4) { width: 25%; }
.nodes th:nth-child(5) { width: 10%; }
.gpus th:nth-child(1) { width: 18%; }
.gpus th:nth-child(2) { width: 50%; }
.holders th:nth-child(1) { width: 24%; }
.holders th:nth-child(2) { width: 32%; }
.runs th:nth-child(1) { width: 22%; }
.runs th:nth-child(2) { width: 15%; }
.runs th:nth-child(4) { width: 14%; }
.use { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: center; }
.use .number { flex: 0 0 218px; }
.bar { display: block; flex: 1 1 120px; min-width: 0; height: 10px; border-radius: 5px; background: var(--track); }
.bar rect { fill: var(--bar); }
.bar.unread { background: repeating-linear-gradient(135deg, var(--track) 0 6px, var(--soft) 6px 8px); }
.fault { color: var(--attention); font-weight: 600; }
.log { margin: 6px 0 0; padding: 10px 12px; background: var(--ground); border-radius: 6px; white-space: pre-wrap; }
details { margin-top: 20px; }
summary { font-weight: 600; font-size: 14px; color: var(--soft); cursor: pointer; }
footer { margin-top: 24px; font-size: 13px; color: var(--soft); }
@media (max-width: 640px) {
  body { padding: 16px 10px 32px; }
  .card { padding: 14px 12px; }
  th, td { padding-right: 8px; }
  table { font-size: 13px; }
  .wide { display: none; }
  .nodes .badge { font-size: 12px; padding: 1px 7px; }
  .nodes th:nth-child(1) { width: 19%; }
  .nodes th:nth-child(2) { width: 30%; }
  .nodes th:nth-child(3) { width: 27%; }
  .nodes th:nth-child(4) { width: 24%; }
  .gpus th:nth-child(1) { width: 12%; }
  .gpus th:nth-child(2) { width: 48%; }
  .holders th:nth-child(1) { width: 45%; }
  .holders th:nth-child(2) { width: 55%; }
  .runs th:nth-child(1), .runs th:nth-child(2) { width: 28%; }
  .use .number, .bar { flex: 1 1 100%; }
}
@media print { body { background: #ffffff; } .card { break-inside: avoid; } }
"""
