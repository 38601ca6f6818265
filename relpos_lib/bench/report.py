"""What is printed: a table a case, the growth over lengths, and which promises hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relpos_lib.bench.cases import Case, case_of
from relpos_lib.bench.contenders import PLAIN
from relpos_lib.bench.plan import OVER_PLAIN

Record = Mapping[str, Any]


def size(number: float) -> str:
    """Bytes for a reader.

    >>> size(8000), size(2.5e9)
    ('8.0 kB', '2.5 GB')
    """
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= one:
            return f"{number / one:.1f} {unit}"
    return f"{number:.0f} B"


def heading(machine: Record, settings: Record) -> str:
    """What all numbers depend on, in two lines."""
    hardware = machine.get("gpu", machine["processor"])
    return (
        f"{hardware}, {machine['threads']} threads, torch {machine['torch']}, "
        f"Python {machine['python']}\n"
        f"B={settings['batch']} H={settings['heads']} D={settings['width']}; "
        f"ratio to attention without positions ({PLAIN}), median of "
        f"{settings['rounds']} rounds or more [lowest, highest], quartiles in between; "
        "memory above inputs, output and gradients"
    )


def table(record: Record) -> str:
    """One case: a line a contender."""
    return "\n".join([_title(record), *_lines(record)])


def growth(records: Mapping[str, Record]) -> str:
    """Ratios of every contender by length, a block a workload and direction."""
    blocks: dict[Case, dict[int, Record]] = {}
    for record in records.values():
        case = case_of(dict(record))
        blocks.setdefault(case._replace(length=0), {})[case.length] = record
    grown = {case: by for case, by in blocks.items() if len(by) > 1}
    return "\n\n".join(_growth_of(case, by) for case, by in grown.items())


def check_line(record: Record) -> str:
    """One backend's errors in one check."""
    who = f"  {record['contender']:14}"
    for why in ("skipped", "not_served", "failed"):
        if why in record:
            return f"{who}{why.replace('_', ' ')}: {record[why]}"
    worst = max(record["errors"], key=lambda name: record["errors"][name])
    return (
        f"{who}{'equal' if record['holds'] else 'NOT EQUAL':10}"
        f"output {record['errors']['output']:.1e}, "
        f"worst {record['errors'][worst]:.1e} ({worst}), "
        f"allowed {record['tolerance']:.0e}"
    )


def check_title(record: Record) -> str:
    """What a group of checks is about."""
    whole = record["rows"] == record["length"]
    rows = "all queries" if whole else f"{record['rows']} queries"
    return f"check {_title(record, peer=False)}, padding mask, {rows}"


def promises(verdicts: Sequence[Record]) -> str:
    """Every promise about plain attention; of the others those that do not hold."""
    plain = [v for v in verdicts if v["what"] == OVER_PLAIN]
    best = [v for v in verdicts if v["what"] != OVER_PLAIN]
    lines = [_verdict_line(v) for v in plain]
    lines += [_verdict_line(v) for v in best if not v["holds"]]
    if best:
        held = sum(v["holds"] for v in best)
        lines.append(f"  auto is near the best of ours in {held} of {len(best)} cases")
    return "\n".join(["promises", *lines]) if lines else ""


def _verdict_line(verdict: Record) -> str:
    word = "holds" if verdict["holds"] else "does not hold"
    return (
        f"  {word:14}{verdict['measured']:5.2f} of {verdict['bound']:.2f}  "
        f"{verdict['what']}, {verdict['case']}"
    )


def _title(record: Record, peer: bool = True) -> str:
    distance = record["max_distance"]
    about = f"{record['workload']} L={record['length']}"
    about += "" if distance is None else f" K={distance}"
    about += " causal" if record["causal"] else ""
    about += f" {record['dtype']}, {record['direction']}"
    known = record.get("peer") if peer else None
    if known:
        about += f"; plain {known['seconds']:.3g} s, {size(known['peak_bytes'])}"
    return about


def _lines(record: Record) -> list[str]:
    lines = [
        f"  {name:26}{cell['ratio']:7.2f}x  [{cell['low']:.2f}, {cell['high']:.2f}]  "
        f"{cell['quartiles'][0]:.2f}-{cell['quartiles'][1]:.2f}  "
        f"{cell['rounds']} round{'s' * (cell['rounds'] > 1)}  "
        f"{size(cell['peak_bytes'])}"
        for name, cell in record["cells"].items()
    ]
    lines += [
        f"  {name:26}skipped: {why['reason']}"
        for name, why in record["skipped"].items()
    ]
    for kind in ("not_served", "failed"):
        lines += [
            f"  {name:26}{kind.replace('_', ' ')}: {why}"
            for name, why in record[kind].items()
        ]
    return lines


def _growth_of(case: Case, by_length: Mapping[int, Record]) -> str:
    lengths = sorted(by_length)
    distance = "" if case.max_distance is None else f" K={case.max_distance}"
    causal = " causal" if case.causal else ""
    title = f"{case.workload}{distance}{causal} {case.dtype}, {case.direction}"
    names = dict.fromkeys(
        name
        for length in lengths
        for kind in ("cells", "skipped")
        for name in by_length[length][kind]
        if name != PLAIN
    )
    lines = [f"{title:37}" + "".join(f"{length:>9}" for length in lengths)]
    for name in names:
        cells = (_short(by_length[length], name) for length in lengths)
        lines.append(f"  {name:35}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def _short(record: Record, name: str) -> str:
    if name in record["cells"]:
        return f"{record['cells'][name]['ratio']:.2f}x"
    return "skipped" if name in record["skipped"] else ""
