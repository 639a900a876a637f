"""Prints the results of run.py as Markdown tables."""

TITLES = {"null": "null", "null-quickack": "null, quick ACK", "kvasird": "kvasird",
          "kvasird-nochecksum": "kvasird, integrity off", "redis": "Redis",
          "python": "LMCache (Python)", "echo": "echo", "memcpy": "memcpy, one thread",
          "kvasird-inline": "kvasird, inline", "python-inline": "LMCache (Python), inline"}


def number(value):
    """Four significant figures are more than the noise leaves."""
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_range(spread, scale=1.0):
    if not spread:
        return "–"
    low, high = number(spread["min"] / scale), number(spread["max"] / scale)
    return f"**{number(spread['median'] / scale)}** [{low}–{high}]"


def rate_entry(entry):
    if not entry or not entry["rate"]:
        return "–"
    text = with_range(entry["rate"])
    if entry["p50_us"]:
        text += f" ({number(entry['p50_us']['median'])} / {number(entry['p99_us']['median'])})"
    return text + (f" **{entry['bad']} WRONG**" if entry["bad"] else "")


def cpu_entry(entry):
    if not entry or not entry["client_cpu_cores"]:
        return "–"
    server = entry["server_cpu_cores"]
    server = f"{server['median']:.1f}" if server else "?"
    return f"{entry['client_cpu_cores']['median']:.1f} / {server}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def load_tables(cells):
    names = [name for name in TITLES if any(name in cell["targets"] for cell in cells)]
    pairs = list(dict.fromkeys(pair for cell in cells for pair in cell["ratios"]))

    def by_target(render):
        return [[cell["name"], *(render(cell["targets"].get(name)) for name in names)]
                for cell in cells]

    titles = [TITLES[name] for name in names]
    rates = [[row[0], cell["unit"], *row[1:]]
             for cell, row in zip(cells, by_target(rate_entry))]
    yield "Rate: median [range] (p50 / p99 µs)", table(["cell", "unit", *titles], rates)
    if pairs:
        yield "Ratio of the two rates of a round: median [range]", table(
            ["cell", *pairs],
            [[cell["name"], *(with_range(cell["ratios"].get(pair)) for pair in pairs)]
             for cell in cells])
    yield "Processor cores used, client / server", table(["cell", *titles],
                                                         by_target(cpu_entry))


def other_tables(cells):
    for cell in cells:
        if cell["kind"] == "memcpy":
            yield "memcpy, one thread", table(
                ["block", "GB/s"],
                [[size, with_range(rate)] for size, rate in cell["gb_per_s"].items()])
        elif cell["kind"] == "start":
            yield "Start and idle memory", table(
                ["server", "start to ready, s", "resident, MB", "of it shared pool, MB",
                 "beside the pool, MB"],
                [[TITLES[name], with_range(entry["start_seconds"]),
                  with_range(entry["idle_rss_bytes"], 1e6),
                  with_range(entry["idle_shmem_bytes"], 1e6),
                  with_range(entry["idle_beside_pool_bytes"], 1e6)]
                 for name, entry in cell["targets"].items()])
        elif cell["kind"] == "object-memory":
            yield "Memory per object beside its bytes", table(
                ["server", "objects kept", "value, B", "anonymous memory, B/object",
                 "beside the value, B/object"],
                [[TITLES[name], number(entry["kept"]), str(entry["value_bytes"]),
                  number(entry["anon_bytes_per_object"]),
                  number(entry["beside_value_bytes_per_object"])]
                 for name, entry in cell["targets"].items()])


def markdown(report):
    machine, run = report["machine"], report["run"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, Linux"
        f" {machine['kernel']}; {run['date']}; {run['rounds']} rounds of {run['secs']} s; load"
        f" average {run['load_average_start'][0]:.1f} at the start,"
        f" {run['load_average_end'][0]:.1f} at the end.\n",
        "; ".join(f"{name} {version}" for name, version in report["versions"].items()) + ".\n"]
    loads = [cell for cell in report["cells"] if cell["kind"] == "load"]
    tables = list(load_tables(loads)) if loads else []
    for title, text in [*tables, *other_tables(report["cells"])]:
        parts.append(f"### {title}\n\n{text}")
    for name, why in report["left_out"].items():
        parts.append(f"Left out: {TITLES[name]} ({why}).\n")
    for complaint in report["complaints"]:
        parts.append(f"**Complaint:** {complaint}\n")
    return "\n".join(parts)
