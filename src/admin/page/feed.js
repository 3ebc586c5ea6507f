// The connection: events come, or do not come, and the page says which. What came earlier is never shown as
// the present.

/** An event comes every second; the loop may take two to answer. Later than this, the page is stale. */
const STALE_AFTER_MS = 5000;
const AGAIN_AFTER_MS = 3000;

/** The problems that are shown; the others are counted. */
const PROBLEMS_MAX = 12;
const SEVERITY_ORDER = ['error', 'warning', 'info'];

const connection = { why: '', isFirst: true, drawn: '', title: 'Fleet' };

/** A button for each state that occurs or is chosen, the worst first. */
function drawChips() {
  const { counts } = fleet.head;
  const shown = STATES.filter((it) => counts[it] > 0 || state.states.has(it));
  const made = new Map([...byId('states').children].map((element) => [element.dataset.state, element]));
  const chips = shown.map((it) => made.get(it) ?? button('', () => {
    if (!state.states.delete(it)) state.states.add(it);
    drawChips();
    arrange();
  }, { 'data-state': it, class: TONES_OF[it] }));
  const had = document.activeElement;
  // One that is moved while it is pressed gets no click.
  if (chips.length !== made.size || chips.some((chip) => !made.has(chip.dataset.state))) byId('states').replaceChildren(...chips);
  if (chips.includes(had)) had.focus();
  for (const chip of chips) {
    const it = chip.dataset.state;
    chip.setAttribute('aria-pressed', state.states.has(it));
    chip.replaceChildren(html('span', { class: 'n', text: (counts[it] ?? 0).toLocaleString('en') }), html('span', { text: it }));
  }
}

/** The open problems that need somebody, and what else keeps connectors from being ok. */
function problemsShown() {
  const rows = [...fleet.rows.values()].filter((row) => row.state !== 'ok' && row.worst?.cause);
  const causes = new Set(rows.map((row) => row.worst.cause));
  const open = fleet.head.problems.filter((it) => it.severity !== 'info' || causes.has(it.cause));
  const isOpen = ({ worst, upstream }) => open.some((it) => it.cause === worst.cause && (worst.hop === 'mirrored' || [worst.cluster, upstream?.cluster].includes(it.cluster)));
  const others = grouped(rows.filter((row) => !isOpen(row)), ({ worst }) => JSON.stringify([worst.cause, worst.cluster]));
  const shown = others.map((of) => ({ ...of[0].worst, severity: of[0].state === 'stuck' ? 'error' : 'warning', count: of.length }));
  const rank = ({ severity }) => SEVERITY_ORDER.indexOf(severity);
  return [...open, ...shown].sort((a, b) => rank(a) - rank(b) || b.count - a.count);
}

/** A line for each: what is wrong, with how many objects, and what to do. */
function problemLine({ severity, cause, count: n, message, remedy }) {
  return html('li', { class: severity }, [
    html('span', { class: 'cause', text: words(cause) }),
    html('div', {}, [message && prose(message), remedy && html('span', { class: 'remedy' }, [' → ', ...withCode(remedy)])]),
    html('span', { class: 'kind', text: n > 1 ? `${severity} · ${n.toLocaleString('en')} objects` : severity }),
  ]);
}

function drawProblemLines() {
  const problems = problemsShown();
  const drawn = JSON.stringify(problems);
  // A text that somebody has unfolded stays so while the problems are the same.
  if (connection.drawn === drawn) return;
  connection.drawn = drawn;
  const rest = problems.slice(PROBLEMS_MAX);
  const lines = problems.slice(0, PROBLEMS_MAX).map(problemLine);
  if (rest.length) lines.push(html('li', { class: rest[0].severity }, [html('span', { class: 'cause', text: count(rest.length, 'more problem') })]));
  byId('problems').hidden = !lines.length;
  byId('problems').replaceChildren(...lines);
}

/** The leader, as far as this instance knows. */
function leaderText({ leads, holder, waitsUntilMs }) {
  if (leads) return 'this instance leads';
  if (waitsUntilMs > fleet.at) return `this instance waits until ${timeText(waitsUntilMs)} before it leads`;
  return holder ? `this instance is a standby: ${holder} leads` : 'this instance does not lead, and knows no leader';
}

function drawHead() {
  const { counts, clusters, leader } = fleet.head;
  const parts = STATES.slice(0, -1).filter((it) => counts[it]).map((it) => `${counts[it].toLocaleString('en')} ${it}`);
  const all = fleet.rows.size;
  connection.title = `${count(all, 'connector')}${parts.length ? `: ${parts.join(', ')}` : all ? ', none stuck' : ''}`;
  byId('title').textContent = connection.title;
  document.title = `${counts.stuck ? `${counts.stuck} stuck · ` : ''}throughline live`;
  byId('role').textContent = `${count(clusters.length, 'cluster')} · ${leaderText(leader)}`;
  drawChips();
  drawProblemLines();
}

/** Says how old the shown state is; old state is marked as such. */
function drawAge() {
  const isFirst = !fleet.received;
  const silent = performance.now() - fleet.received;
  state.isStale = isFirst || connection.why !== '' || silent > STALE_AFTER_MS;
  document.body.classList.toggle('stale', state.isStale && !isFirst);
  const at = clock(fleet.at).slice(0, 8);
  const age = ageText(silent);
  byId('when').textContent = isFirst ? 'waiting for the first answer' : state.isStale ? `as of ${at} UTC, ${age} ago` : `${at} UTC, live`;
  const lost = byId('lost');
  const why = connection.why || 'No answer from throughline';
  const text = isFirst ? `${why}.` : `${why}. Nothing since ${at} UTC: below is the state as it was then. Trying again.`;
  lost.hidden = isFirst ? connection.why === '' : !state.isStale;
  if (!lost.hidden && lost.textContent !== text) lost.textContent = text;
  if (state.isStale && !isFirst) {
    byId('title').textContent = `At ${at} UTC: ${connection.title}`;
    document.title = 'no connection · throughline live';
    redraw();
  }
}

function receive(message, isWhole) {
  const event = JSON.parse(message.data);
  const changed = take(event, isWhole);
  connection.why = '';
  drawAge();
  // At rest an event has only its time.
  if (Object.keys(event).length > 1 || document.title.startsWith('no connection')) drawHead();
  if (changed.size || isWhole) arrange();
  else redraw();
  if (connection.isFirst) {
    connection.isFirst = false;
    restoreSelection();
  }
  if (state.selected && !fleet.rows.has(state.selected)) select(null);
  else if (changed.has(state.selected)) drawPanel();
}

function connect() {
  const source = new EventSource('changes');
  source.addEventListener('fleet', (event) => receive(event, true));
  source.addEventListener('change', (event) => receive(event, false));
  const fail = (why) => { connection.why = why; drawAge(); };
  source.addEventListener('trouble', (event) => fail(`throughline says: ${JSON.parse(event.data)}`));
  source.addEventListener('refused', (event) => fail(JSON.parse(event.data)));
  source.addEventListener('end', () => fail('throughline has stopped'));
  source.addEventListener('error', () => {
    // A stream that ends is asked for again by the browser; after a failed request it gives up.
    if (source.readyState !== EventSource.CLOSED) return;
    fail('No connection to throughline');
    setTimeout(connect, AGAIN_AFTER_MS);
  });
}

document.body.prepend(patterns());
addThemeHandlers();
addControlHandlers();
addKeyHandlers();
addEventListener('hashchange', restoreSelection);
setInterval(drawAge, 1000);
setInterval(forgetPast, 60e3);
legend();
drawHelp();
resize();
connect();
