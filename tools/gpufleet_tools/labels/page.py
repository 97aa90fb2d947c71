"""The catalogue of labels as a page for people who write workflows: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.labels.catalogue import (
    Catalogue,
    LabelEntry,
    cluster_words,
    common_group,
    core_words,
    each_word,
    gpu_words,
    jobs_at_once,
    memory_words,
    served_together,
    status_words,
)
from gpufleet_tools.labels.runner_version import runner_words

_STYLE = """\
:root {
  color-scheme: light dark;
  --page: #f6f8fa; --card: #fff; --text: #1f2328; --quiet: #59636e; --line: #d1d9e0; --link: #0969da;
  --warning: #7d4e00; --warning-line: #d4a72c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #151b23; --text: #f0f6fc; --quiet: #9198a1; --line: #3d444d; --link: #4493f8;
    --warning: #e3b341; --warning-line: #9e6a03;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem; max-width: 80rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { margin: 0; font-size: 1.5rem; }
h2 { margin: 0; font-size: 1.125rem; }
p { margin: .5rem 0; max-width: 45rem; }
code { font: .9375em ui-monospace, monospace; }
a { color: var(--link); }
main {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1rem;
  margin: 1.5rem 0;
}
article { padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .25rem .75rem; margin: .75rem 0 0; }
dt, footer { color: var(--quiet); }
dd { margin: 0; }
.deprecated { border-color: var(--warning-line); }
.warning { color: var(--warning); }
"""


def html(entries: Catalogue) -> str:
    """Return the page. It has no script, and loads nothing."""
    labels = sorted({entry.label for entry in entries.labels})
    stacks = sorted({entry.stack for entry in entries.labels})
    count = f"{len(labels)} label{'s' * (len(labels) != 1)}" + (f" of {listed(stacks, 'and')}" if stacks else "")
    cards = "".join(map(_card, served_together(entries)))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Runner labels</title>
<style>
{_STYLE}</style>
</head>
<body>
<header>
<h1>Runner labels</h1>
<p>{escape(count)}. A job asks for runners by their label, such as
<code>runs-on: {escape(_example(labels))}</code>. A job with a misspelt label does not fail: it queues for 24 hours.</p>
</header>
<main>
{cards}</main>
<footer>
<p>Jobs that find no room wait until others end. A job may run for 6 hours, or as long as its
<code>timeout-minutes</code> says. GitHub cancels a job that has waited for 24 hours.</p>
</footer>
</body>
</html>
"""


def _example(labels: Sequence[str]) -> str:
    return labels[0] if labels else "LABEL"


def _card(entries: Sequence[LabelEntry]) -> str:
    """Return the card of a label, of all stacks that serve it."""
    deprecated = any(each.status == "deprecated" for each in entries)
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>\n" for name, text in _rows(entries))
    said = each_word(status_words, entries).capitalize()
    status = f'<p class="warning">{escape(said)}</p>\n' if deprecated else ""
    return f"""\
<article{' class="deprecated"' if deprecated else ""}>
<h2><code>{escape(entries[0].label)}</code></h2>
{status}<dl>
{rows}</dl>
</article>
"""


def _rows(entries: Sequence[LabelEntry]) -> Iterator[tuple[str, str]]:
    """Yield the facts about a label: name, and HTML."""
    first = entries[0]
    yield "GPUs", escape(each_word(gpu_words, entries))
    yield "CPU, memory", escape(each_word(lambda each: f"{core_words(each)} cores, {memory_words(each)}", entries))
    yield "Architecture", escape(each_word(lambda each: each.architecture or "unknown", entries))
    yield "Nodes", each_word(_nodes, entries)
    yield "Containers", each_word(_containers, entries)
    yield "At once", escape(_room(entries))
    yield "Jobs of", _link(first.config_url)
    if additional := dict.fromkeys(label for each in entries for label in each.additional_labels):
        yield "More labels", ", ".join(f"<code>{escape(label)}</code>" for label in additional)
    if group := common_group(entries):
        yield "Runner group", escape(group)
    yield "Cluster" if len(entries) == 1 else "Clusters", escape(cluster_words(entries))
    yield "Runner", escape(each_word(lambda each: runner_words(each.runner_version, each.no_jobs_from), entries))
    if contacts := dict.fromkeys(text for each in entries for text in (each.owner, each.contact) if text):
        yield "Ask", ", ".join(map(_link, contacts))


def _nodes(entry: LabelEntry) -> str:
    if not entry.capacity:
        return "machines of the cluster"
    text = f"{escape(listed(entry.capacity, 'or'))}, provisioned when jobs wait"
    if "spot" in entry.capacity:
        text += '. <span class="warning">AWS reclaims spot nodes with two minutes of notice; their jobs fail.</span>'
    return text


def _containers(entry: LabelEntry) -> str:
    if entry.docker is None:
        return "none: no <code>container:</code>, no <code>services:</code>, no <code>docker</code>"
    if entry.docker == "sidecar":
        return "Docker: <code>container:</code>, <code>services:</code>, <code>docker</code>"
    every = "every job needs <code>container:</code>; " if entry.requires_container else ""
    return f"<code>container:</code> and <code>services:</code> as pods; {every}no <code>docker</code>"


def _room(entries: Sequence[LabelEntry]) -> str:
    number, guaranteed = jobs_at_once(entries)
    most = f"at most {number} job{'s' * (number != 1)}"
    if guaranteed is None:
        return most
    if guaranteed >= number:
        return f"{most}, which always find room"
    if guaranteed:
        return f"{most}; {guaranteed} always find room"
    limiting = dict.fromkeys(label for each in entries for label in each.limited_by)
    rivals = f" of {listed([*limiting], 'or')}" if limiting else ""
    return f"{most}; jobs{rivals or ' of other labels'} can leave no room for any"


def _link(text: str) -> str:
    """Return a text, as a link if it is a web address."""
    if not text.startswith(("https://", "http://")):
        return escape(text)
    return f'<a href="{escape(text)}">{escape(text.partition("://")[2])}</a>'
