// The page around the timeline: its head, the text below, what the controls do.

const MODES = {
  'what-if': 'What throughline would have done, laid over the recording (what-if)',
  verify: 'What throughline did, decided again from its own log (verify)',
  live: 'Played into clusters in memory, with throughline running on them',
};
const TEXT_STEP = 100;

function bar(title, ms, most, cls, words) {
  const share = most ? Math.max((ms / most) * 100, ms ? 1 : 0) : 0;
  return html('div', { class: 'bar' }, [
    html('span', { class: 'dim', text: title }),
    svg('svg', { 'aria-hidden': 'true', preserveAspectRatio: 'none', viewBox: '0 0 100 10' }, [
      svg('rect', { x: 0, y: 0, width: 100, height: 10, class: 'p-bg' }), svg('rect', { x: 0, y: 0, width: share, height: 10, class: cls }),
    ]),
    html('span', { class: 'num', text: words }),
  ]);
}

function painCard(pain) {
  const figures = rows.flatMap((row) => row.figures.filter((f) => f.pain === pain));
  const side = (name) => {
    const sides = figures.map((f) => f[name]).filter(Boolean);
    const ms = sides.reduce((sum, it) => sum + it.ms, 0);
    const open = sides.some((it) => it.open);
    return { ms, words: ms || open ? `${open ? 'at least ' : ''}${duration(ms)}` : 'none' };
  };
  const [recorded, replayed] = [side('recorded'), side('replayed')];
  const most = Math.max(recorded.ms, replayed.ms);
  const cls = pain === '503' ? 'o-wrong' : 'o-dead';
  const of = new Set(rows.filter((row) => row.figures.some((f) => f.pain === pain))).size;
  const title = pain === '503' ? '503, added up' : 'Dead tunnel, added up';
  if (!of && blind) return html('div', { class: 'card pain' }, [html('h2', { text: pain }), html('span', { text: `cannot be told: ${blind}` })]);
  return html('div', { class: 'card pain' }, [
    html('h2', { text: of ? `${title} over ${count(of, 'connector')}` : title }),
    bar(isVerify ? 'as it was' : 'as recorded', recorded.ms, most, cls, recorded.words),
    isVerify ? null : bar('with throughline', replayed.ms, most, cls, replayed.words),
  ]);
}

function drawHead() {
  const name = report.file.split('/').pop() || report.file;
  document.title = `${name}: throughline ${report.mode}`;
  byId('title').textContent = name;
  byId('title').title = report.file;
  byId('mode').textContent = MODES[report.mode];
  byId('facts').replaceChildren(...report.picture.head.slice(1).map((line) => html('p', { text: line.trim() })));
  const good = report.verdict.converged ?? report.verdict.verified;
  const word = report.verdict.verified === undefined ? 'converged' : 'verified';
  const problems = report.verdict.problems.length;
  byId('cards').replaceChildren(
    painCard('503'), blind && !rows.some((row) => row.figures.length) ? '' : painCard('dead tunnel'),
    html('div', { class: 'card' }, [
      html('h2', { text: 'Verdict' }),
      html('p', { class: `big ${good ? 'good' : 'bad'}`, text: good ? `✓ ${word}` : `✗ not ${word}` }),
      html('p', { class: 'dim', text: good ? count(report.actions.length, 'action') : `${count(problems, 'problem')}, ${count(report.actions.length, 'action')}` }),
    ]),
  );
  const lines = report.picture.bottom.filter((line) => line.trim());
  byId('bottom-lines').replaceChildren(...lines.map((line) => {
    const depth = Math.ceil(line.search(/\S/) / 2);
    return html(depth ? 'p' : 'h3', { class: depth ? `l${depth}` : null, text: line.trim() });
  }));
  byId('bottom').open = !good;
  if (report.picture.only) byId('facts').append(html('p', { text: `of connector ${report.picture.only} alone` }));
  for (const warning of report.warnings) byId('facts').append(html('p', { class: 'bad', text: warning }));
}

/** One connector as text: its outages, and its story. */
function storyOf(row) {
  const heads = ['from', 'edge', 'what'];
  const spans = row.users.flatMap((lane) => lane.spans.map((span) => ({ lane, span }))).sort((a, b) => a.span.from - b.span.from);
  const outages = spans.map(({ lane, span }) => [clock(span.from), lane.edge, `${lane.title}: ${outageWords(span)}`]);
  const items = row.story.map((item) => html('li', {}, [
    html('span', { class: 'when', text: `${clock(item.at)}  ${offset(item.at)}` }), html('span', { text: item.text }),
  ]));
  return [
    outages.length ? html('h3', { text: 'What users saw' }) : null, outages.length ? tableOf('Outages', heads, outages) : null,
    html('h3', { text: 'What happened' }), html('ol', { class: 'tell' }, items),
  ].filter(Boolean);
}

let told = TEXT_STEP;

function drawText() {
  const some = state.shown.filter((row) => !row.isRest).slice(0, told);
  const pains = isVerify ? [['503', 'recorded', '503']] : [['503', 'recorded', '503 as recorded'], ['503', 'replayed', '503 with throughline']];
  const dead = isVerify ? [['dead tunnel', 'recorded', 'dead tunnel']] : [['dead tunnel', 'recorded', 'dead tunnel as recorded'], ['dead tunnel', 'replayed', 'dead tunnel with throughline']];
  const sides = [...pains, ...dead];
  byId('table').replaceChildren(...tableOf('Connectors', ['connector', 'where', ...sides.map((s) => s[2]), 'actions', 'stalls'], some.map((row) => [
    button(row.label, () => { toggle(row, true); goTo(row, row.story.length ? 0 : -1); byId('panel').scrollIntoView({ block: 'nearest' }); }, { class: 'link' }),
    row.place, ...sides.map(([pain, side]) => figureWords(row, pain, side)), String(row.actions), row.stuck ? `${row.stalls}, not over` : String(row.stalls),
  ])).childNodes);
  byId('stories').replaceChildren(...state.shown.slice(0, told).filter((row) => row.story.length).map((row) => {
    const details = html('details', { class: 'story' }, [html('summary', { text: `${row.isRest ? 'What is' : 'Story of'} ${row.label}, ${count(row.story.length, 'entry', 'entries')}` })]);
    details.addEventListener('toggle', () => {
      if (details.open && details.childElementCount === 1) details.append(...storyOf(row));
    });
    return details;
  }));
  byId('more').hidden = state.shown.length <= told;
}

function theme() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);
  const name = () => { byId('theme').textContent = isDark() ? 'Light colours' : 'Dark colours'; };
  byId('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; name(); });
  dark.addEventListener('change', name);
  name();
}

function controls() {
  let typing = 0;
  const refilter = () => { told = TEXT_STEP; arrange(); drawText(); };
  byId('filter').addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(refilter, 60); });
  byId('order').addEventListener('change', refilter);
  byId('more').addEventListener('click', () => { told += TEXT_STEP; drawText(); });
  byId('zoom-in').addEventListener('click', () => zoom(0.6));
  byId('zoom-out').addEventListener('click', () => zoom(1 / 0.6));
  byId('fit').addEventListener('click', fit);
  byId('expand').addEventListener('click', () => {
    const open = !state.shown.some((row) => row.open);
    state.shown.forEach((row) => { row.open = open && lanesIn(row) > 0; });
    measure();
  });
  addEventListener('hashchange', restore);
  new ResizeObserver(resize).observe(scroller);
  const onPaper = (is) => { state.onPaper = is; resize(); draw(); };
  addEventListener('beforeprint', () => onPaper(true));
  addEventListener('afterprint', () => onPaper(false));
}

document.body.prepend(patterns());
drawHead();
theme();
controls();
drags();
keys();
// Where there are few connectors, the worst is open from the beginning.
[...rows].sort(byWorst).slice(0, rows.length > 30 ? 0 : 1).forEach((row) => { row.open = row.story.length > 0 && !row.isRest; });
legend();
resize();
arrange();
drawPanel();
drawText();
lookAtRecording();
restore();
