"""The look of report.html, and the policy that forbids it all network and scripts."""

from __future__ import annotations

from typing import Final

POLICY: Final = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)

CSS: Final = """
:root { --ink: #1c2529; --quiet: #53646c; --line: #d9e0e3; --paper: #ffffff; --ground: #eef2f4;
  --accent: #8a1f4b;  --link: #2b5f75; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header { background: #16323f; color: #f5f8f9; padding: 28px max(20px, calc(50vw - 540px)) 0; }
header h1 { margin: 0; font-size: 28px; line-height: 1.2; font-weight: 650; overflow-wrap: anywhere; }
header p { margin: 6px 0 18px; color: #b9cdd6; }
nav { display: flex; flex-wrap: wrap; gap: 2px 20px; border-top: 1px solid rgba(255, 255, 255, 0.18);
  padding: 9px 0 11px; }
nav a { color: #dbe7ec; text-decoration: none; font-size: 14px; }
nav a:hover, nav a:focus { text-decoration: underline; }
main { max-width: 1120px; margin: 0 auto; padding: 20px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 6px 24px 20px;
  margin: 18px 0; }
h2 { font-size: 19px; margin: 14px 0 12px; font-weight: 650; }
p { margin: 0 0 12px; max-width: 78ch; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; }
.cards div { background: var(--paper); border: 1px solid var(--line); border-top: 3px solid var(--accent);
  border-radius: 8px; padding: 10px 14px 11px; display: flex; flex-direction: column; }
.cards span { color: var(--quiet); font-size: 13px; }
.cards b { font-size: 22px; font-weight: 650; line-height: 1.3; font-variant-numeric: tabular-nums; }
.cards small { color: var(--quiet); font-size: 12.5px; line-height: 1.35; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 20px; }
figure { margin: 0 0 8px; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--quiet); font-size: 14px; line-height: 1.4; margin-top: 6px; max-width: 90ch; }
.wide { overflow-x: auto; margin: 0 0 14px; }
table { border-collapse: collapse; font-size: 15px; }
th, td { text-align: left; vertical-align: top; padding: 5px 22px 5px 0;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); font-weight: 500; font-size: 13.5px; border-bottom: 2px solid var(--line);
  white-space: nowrap; }
td { overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.facts th { font-weight: 400; color: var(--quiet); white-space: nowrap; }
.facts, .choices { width: 100%; }
.facts td { width: 100%; }
.choices td:first-child { color: var(--quiet); white-space: nowrap; }
.choices td:nth-child(2) { font-weight: 500; }
.good, .bad { border-left: 4px solid #3c8a5b; background: #eef7f1; padding: 9px 14px;
  border-radius: 0 6px 6px 0; }
.bad { border-color: #b3261e; background: #fbeeed; }
.quiet { color: var(--quiet); font-size: 14px; }
.warn { margin: 0; padding: 10px 14px 10px 32px; border-left: 4px solid #c98a11; background: #fdf6e7;
  border-radius: 0 6px 6px 0; }
.warn li { margin: 3px 0; overflow-wrap: anywhere; }
footer { text-align: center; color: var(--quiet); font-size: 13px; padding: 4px 20px 28px; }
@media (max-width: 640px) {
  main { padding: 12px; }
  section { padding: 4px 14px 14px; }
  header { padding: 20px 16px 0; }
  header h1 { font-size: 22px; }
  .cards { grid-template-columns: 1fr 1fr; }
  .facts th { white-space: normal; }
}
@media print {
  body { background: none; font-size: 11pt; }
  nav { display: none; }
  section, figure, .cards { break-inside: avoid; }
  section { border: 0; padding: 0; }
  header { background: none; color: var(--ink); padding: 0 20px; }
  header p { color: var(--quiet); }
}
"""
