// The page around the timeline: the head, the text below, the controls.

const MODES = {
  'what-if': 'What throughline would have done with the recorded changes (what-if)',
  verify: 'What throughline did, compared with what it decides now (verify)',
  live: 'Played into in-memory clusters, with throughline running on them',
};
const TEXT_STEP = 100;

function bar(title, ms, most, cls, text) {
  const share = most ? Math.max((ms / most) * 100, ms ? 1 : 0) : 0;
  return html('div', { class: 'bar' }, [
    html('span', { class: 'dim', text: title }),
    svg('svg', { 'aria-hidden': 'true', preserveAspectRatio: 'none', viewBox: '0 0 100 10' }, [
      svg('rect', { x: 0, y: 0, width: 100, height: 10, class: 'p-bg' }), svg('rect', { x: 0, y: 0, width: share, height: 10, class: cls }),
    ]),
    html('span', { class: 'num', text }),
  ]);
}

function symptomCard(symptom) {
  const figures = rows.flatMap((row) => row.figures.filter((f) => f.symptom === symptom));
  const side = (name) => {
    const sides = figures.map((f) => f[name]).filter(Boolean);
    const ms = sides.reduce((sum, it) => sum + it.ms, 0);
    const open = sides.some((it) => it.open);
    return { ms, text: ms || open ? `${open ? 'at least ' : ''}${duration(ms)}` : 'none' };
  };
  const [recorded, replayed] = [side('recorded'), side('replayed')];
  const most = Math.max(recorded.ms, replayed.ms);
  const cls = symptom === '503' ? 'o-wrong' : 'o-dead';
  const of = new Set(rows.filter((row) => row.figures.some((f) => f.symptom === symptom))).size;
  const title = symptom === '503' ? '503 in total' : 'Dead tunnel in total';
  if (!of && unknownBecause) return html('div', { class: 'card symptom' }, [html('h2', { text: symptom }), html('span', { text: `unknown: ${unknownBecause}` })]);
  return html('div', { class: 'card symptom' }, [
    html('h2', { text: of ? `${title}, ${count(of, 'connector')}` : title }),
    bar('in the recording', recorded.ms, most, cls, recorded.text),
    isVerify ? null : bar('with throughline', replayed.ms, most, cls, replayed.text),
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
    symptomCard('503'), unknownBecause && !rows.some((row) => row.figures.length) ? '' : symptomCard('dead tunnel'),
    html('div', { class: 'card' }, [
      html('h2', { text: 'Verdict' }),
      html('p', { class: `big ${good ? 'good' : 'bad'}`, text: good ? `✓ ${word}` : `✗ not ${word}` }),
      ...report.verdict.still_wrong.map((wrong) => html('p', { class: 'bad', text: wrong.text })),
      html('p', { class: 'dim', text: good ? count(report.actions.length, 'action') : `${count(problems, 'problem')}, ${count(report.actions.length, 'action')}` }),
    ]),
  );
  const lines = report.picture.summary.filter((line) => line.trim());
  byId('summary-lines').replaceChildren(...lines.map((line) => {
    const depth = Math.ceil(line.search(/\S/) / 2);
    return depth ? html('div', { class: `line-of l${depth}` }, [prose(line.trim())]) : html('h3', { text: line.trim() });
  }));
  byId('summary').open = !good;
  if (report.picture.only) byId('facts').append(html('p', { text: `only connector ${report.picture.only}` }));
  for (const warning of report.warnings) byId('facts').append(html('div', { class: 'bad' }, [prose(warning)]));
}

/** One connector as text: its outages and its story. */
function storyOf(row) {
  const heads = ['from', 'edge', 'what'];
  const spans = row.users.flatMap((lane) => lane.spans.map((span) => ({ lane, span }))).sort((a, b) => a.span.from - b.span.from);
  const outages = spans.map(({ lane, span }) => [clock(span.from), lane.edge, `${lane.title}: ${outageText(span)}`]);
  const items = row.story.map((item) => html('li', {}, [
    html('span', { class: 'when', text: `${clock(item.at)}  ${offset(item.at)}` }), prose(item.text),
  ]));
  return [
    outages.length ? html('h3', { text: 'What users saw' }) : null, outages.length ? tableOf('Outages', heads, outages) : null,
    html('h3', { text: 'What happened' }), html('ol', { class: 'entries' }, items),
  ].filter(Boolean);
}

let textRows = TEXT_STEP;

function drawText() {
  const some = state.shown.filter((row) => !row.isRest).slice(0, textRows);
  const errors = isVerify ? [['503', 'recorded', '503']] : [['503', 'recorded', '503 in the recording'], ['503', 'replayed', '503 with throughline']];
  const dead = isVerify ? [['dead tunnel', 'recorded', 'dead tunnel']] : [['dead tunnel', 'recorded', 'dead tunnel in the recording'], ['dead tunnel', 'replayed', 'dead tunnel with throughline']];
  const sides = [...errors, ...dead];
  byId('table').replaceChildren(...tableOf('Connectors', ['connector', 'where', ...sides.map((s) => s[2]), 'actions', 'problems'], some.map((row) => [
    button(row.label, () => { toggle(row, true); goTo(row, row.story.length ? 0 : -1); byId('panel').scrollIntoView({ block: 'nearest' }); }, { class: 'link' }),
    row.fullName, ...sides.map(([symptom, side]) => figureText(row, symptom, side)), String(row.actions), row.stuck ? `${row.problems}, not over` : String(row.problems),
  ])).childNodes);
  byId('stories').replaceChildren(...state.shown.slice(0, textRows).filter((row) => row.story.length).map((row) => {
    const details = html('details', { class: 'story' }, [html('summary', { text: `${row.isRest ? 'Everything' : 'Story of'} ${row.label}, ${count(row.story.length, 'entry', 'entries')}` })]);
    details.addEventListener('toggle', () => {
      if (details.open && details.childElementCount === 1) details.append(...storyOf(row));
    });
    return details;
  }));
  byId('more').hidden = state.shown.length <= textRows;
}

function addControlHandlers() {
  let typing = 0;
  const refilter = () => { textRows = TEXT_STEP; arrange(); drawText(); };
  byId('filter').addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(refilter, 60); });
  byId('order').addEventListener('change', refilter);
  byId('more').addEventListener('click', () => { textRows += TEXT_STEP; drawText(); });
  byId('zoom-in').addEventListener('click', () => zoom(0.6));
  byId('zoom-out').addEventListener('click', () => zoom(1 / 0.6));
  byId('fit').addEventListener('click', fit);
  byId('expand').addEventListener('click', () => {
    const open = !state.shown.some((row) => row.open);
    state.shown.forEach((row) => { row.open = open && lanesIn(row) > 0; });
    measure();
  });
  addEventListener('hashchange', restoreSelection);
  new ResizeObserver(resize).observe(scroller);
  const setOnPaper = (onPaper) => { state.onPaper = onPaper; resize(); draw(); };
  addEventListener('beforeprint', () => setOnPaper(true));
  addEventListener('afterprint', () => setOnPaper(false));
}

document.body.prepend(patterns());
drawHead();
addThemeHandlers();
addControlHandlers();
addPointerHandlers();
addKeyHandlers();
// If there are few connectors, the most affected one is expanded at first.
[...rows].sort(byWorst).slice(0, rows.length > 30 ? 0 : 1).forEach((row) => { row.open = row.story.length > 0 && !row.isRest; });
legend();
resize();
arrange();
drawPanel();
drawText();
showRecording();
restoreSelection();
