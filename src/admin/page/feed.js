// The connection: events come, or do not come, and the page says which. What came earlier is never shown as
// the present.

/** An event comes every second; the loop may take two to answer. Later than this, the page is stale. */
const STALE_AFTER_MS = 5000;
const AGAIN_AFTER_MS = 3000;

const PHASE_TONES = { stalled: 'wrong', unknown: 'warn', unproven: 'warn', unreplicated: 'warn', unconfigured: 'warn' };
const connection = { why: '', isFirst: true, drawn: null, title: 'Fleet' };

function drawPhases() {
  const phases = Object.entries(fleet.head.phases).filter(([phase, n]) => n > 0 || state.phases.has(phase));
  const rank = ([phase]) => ['stalled', 'unknown', 'unproven', 'unconfigured', 'unreplicated'].indexOf(phase);
  phases.sort((a, b) => (rank(a) < 0 ? 9 : rank(a)) - (rank(b) < 0 ? 9 : rank(b)) || b[1] - a[1]);
  const parent = byId('phases');
  const made = new Map([...parent.children].map((element) => [element.dataset.phase, element]));
  parent.append(...phases.map(([phase, n]) => {
    const chip = made.get(phase) ?? button('', () => {
      if (!state.phases.delete(phase)) state.phases.add(phase);
      drawPhases();
      arrange();
    }, { 'data-phase': phase, class: PHASE_TONES[phase] });
    made.delete(phase);
    chip.setAttribute('aria-pressed', state.phases.has(phase));
    const had = document.activeElement === chip;
    chip.replaceChildren(html('span', { class: 'n', text: n.toLocaleString('en') }), html('span', { text: phase }));
    if (had) queueMicrotask(() => chip.focus());
    return chip;
  }));
  made.forEach((chip) => chip.remove());
}

function drawHead() {
  const rows = [...fleet.rows.values()];
  const of = (it) => rows.reduce((n, row) => n + (row.state === it), 0);
  const wrong = of('wrong');
  const parts = [['wrong', 'stuck'], ['unknown', 'unknown'], ['pending', 'pending']].map(([it, word]) => [of(it), word]).filter(([n]) => n);
  connection.title = `${count(rows.length, 'connector')}${parts.length ? `: ${parts.map(([n, word]) => `${n.toLocaleString('en')} ${word}`).join(', ')}` : rows.length ? ', none stuck' : ''}`;
  byId('title').textContent = connection.title;
  document.title = `${wrong ? `${wrong} stuck · ` : ''}throughline live`;
  const { leads, holder, clusters, banners } = fleet.head;
  byId('role').textContent = `${count(clusters, 'cluster')} · ${leads ? 'this instance leads' : holder ? `${holder} leads` : 'this instance does not lead'}`;
  drawPhases();
  byId('banners').hidden = !banners.length;
  byId('banners').replaceChildren(...banners.map((banner) => html('li', { class: banner.level }, [
    html('span', { class: 'place', text: banner.place || { bad: 'problem', warn: 'note', info: 'note' }[banner.level] }),
    prose(banner.text),
    html('span', { class: 'kind', text: banner.connectors ? count(banner.connectors, 'connector') : '' }),
  ])));
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

function receive(event, isWhole) {
  fleet.id = event.lastEventId;
  const changed = take(JSON.parse(event.data), isWhole);
  connection.why = '';
  drawAge();
  const needsOrder = !changed || changed.size > 0;
  if (needsOrder || fleet.head !== connection.drawn || document.title.startsWith('no connection')) drawHead();
  connection.drawn = fleet.head;
  if (needsOrder) arrange();
  else redraw();
  if (connection.isFirst) {
    connection.isFirst = false;
    restoreSelection();
  }
  if (state.selected && !fleet.rows.has(state.selected)) select(null);
  else if (state.selected && (!changed || changed.has(state.selected))) retrace();
}

function connect() {
  const source = new EventSource(`changes${fleet.id ? `?since=${encodeURIComponent(fleet.id)}` : ''}`);
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
