// The panel: one connector's hops, where it is stuck, and what to do. The server traces it on request,
// again when its row has changed.

/** No more than one request in this time, and how long one may take. */
const TRACE_EVERY_MS = 1000;
const TRACE_WITHIN_MS = 12000;

const tracing = { id: null, isUnderWay: false, isDue: false };

function drawHelp() {
  byId('panel-title').textContent = 'Nothing selected';
  byId('panel-body').replaceChildren(
    html('p', { class: 'dim', text: 'Open a row to see where its connector is stuck, why, and what to do.' }),
    html('h3', { text: 'How to read it' }),
    html('p', { text: 'Each row is a connector; the worst are first. Its lanes show what each hop said during the last minutes, as far as this instance saw it. What is not known is dashed.' }),
  );
}

/** A command with a button that copies it. */
function command(text) {
  const copy = button('Copy', () => {
    navigator.clipboard?.writeText(text).then(() => { copy.textContent = 'Copied'; }, () => { copy.textContent = 'Select and copy'; });
  });
  return html('div', { class: 'command' }, [html('code', { text }), copy]);
}

/** The first line says what for; further lines are commands. */
function remedy(text) {
  const [what, ...commands] = text.split('\n');
  return html('div', { class: 'remedy' }, [html('p', {}, [prose(what)]), ...commands.filter((line) => line.trim()).map((line) => command(line.trim()))]);
}

/** Hops at one edge that say the same are one. */
function groupHops(hops) {
  const groups = new Map();
  for (const hop of hops) {
    const key = hop.hop === 'touched' ? JSON.stringify([hop.cluster, hop.state, hop.why]) : groups.size;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(hop);
  }
  return [...groups.values()];
}

function hopLine(hops, at) {
  const [hop] = hops;
  const names = hops.map((it) => it.object?.name).filter(Boolean);
  const gateways = hop.hop === 'touched' && names.length ? `: ${names.slice(0, 3).join(', ')}${names.length > 3 ? ` and ${names.length - 3} more` : ''}` : '';
  const says = hop.hop !== 'touched' && hop.says ? `, ${stateWord(hop.says.online)}` : '';
  const since = hop.sinceMs ? ` for ${hop.atLeast ? 'more than ' : ''}${duration(Math.max(0, at - hop.sinceMs))}` : '';
  return html('li', {}, [
    html('span', { class: `state ${hop.state}`, text: STATE_WORDS[hop.state] ?? hop.state }),
    html('span', { text: ` · ${HOP_NAMES[hop.hop] ?? hop.hop} (${hop.cluster}${gateways})${says}${since}` }),
    hop.why && hop.state !== 'ok' ? html('div', { class: 'dim' }, [prose(hop.why)]) : null,
  ]);
}

function drawTrace(trace) {
  const first = trace.first === null ? null : trace.hops[trace.first];
  const next = first?.nextAttemptMs ? `; next attempt in ${Math.max(0, Math.ceil((first.nextAttemptMs - trace.atMs) / 1000))} s` : '';
  const upstream = trace.upstream ? `${keyOf(trace.upstream)} in ${trace.upstream.cluster}` : '';
  const replica = trace.replica ? `at the hub and the edges: ${keyOf(trace.replica)}` : 'no hub has it';
  return [
    html('p', { class: 'dim', text: [upstream, replica].filter(Boolean).join('; ') }),
    html('p', { class: `verdict ${first && trace.state === 'wrong' ? 'bad' : ''}`, text: first ? `${trace.state === 'wrong' ? 'Stuck' : `${trace.state[0].toUpperCase()}${trace.state.slice(1)}`} at ${HOP_NAMES[first.hop] ?? first.hop} (${first.cluster})` : 'Every hop agrees.' }),
    first ? html('p', {}, [prose(`${first.why}${next}.`)]) : null,
    first?.expected && trace.state !== 'unknown' && first.hop !== 'touched' ? html('p', { class: 'dim', text: `Expected: ${first.expected}.` }) : null,
    first?.remedies.length ? html('h3', { text: 'What to do' }) : null,
    ...(first?.remedies ?? []).map(remedy),
    html('h3', { text: 'Hops' }),
    html('ul', { class: 'hops' }, groupHops(trace.hops).map((hops) => hopLine(hops, trace.atMs))),
    ...trace.notes.map((note) => html('p', { class: 'dim' }, [prose(`Note: ${note}.`)])),
    html('p', { class: 'dim', id: 'traced', text: `As of ${clock(trace.atMs).slice(0, 8)} UTC.` }),
  ].filter(Boolean);
}

/** Asks for the trace of the selected row; one request at a time. */
async function retrace() {
  if (tracing.isUnderWay) {
    tracing.isDue = true;
    return;
  }
  const row = fleet.rows.get(state.selected);
  if (!row) return;
  tracing.isUnderWay = true;
  tracing.isDue = false;
  const [key, cluster] = row.replica ? [keyOf(row.replica), row.hubs[0] ?? row.edges[0]] : [keyOf(row.upstream), row.upstream.cluster];
  const asked = new URLSearchParams({ connector: key });
  if (cluster) asked.set('in', cluster);
  let parts;
  try {
    const answer = await fetch(`trace?${asked}`, { signal: AbortSignal.timeout(TRACE_WITHIN_MS), headers: { accept: 'application/json' } });
    parts = answer.ok ? drawTrace((await answer.json()).traces[0]) : [html('p', { class: 'bad', text: (await answer.text()).trim() })];
  } catch {
    parts = [html('p', { class: 'bad', text: 'throughline gives no answer about this connector.' })];
    tracing.isDue = true;
  }
  if (state.selected === row.id) byId('panel-body').replaceChildren(...parts);
  setTimeout(() => {
    tracing.isUnderWay = false;
    if (tracing.isDue || state.selected !== row.id) retrace();
  }, TRACE_EVERY_MS);
}

/** Shows a connector in the panel, or none. */
function select(id) {
  if (state.selected === id) return;
  state.selected = id;
  const row = fleet.rows.get(id);
  byId('panel').classList.toggle('empty', !row);
  redraw();
  history.replaceState(null, '', row ? `#connector=${encodeURIComponent(id)}` : location.pathname);
  if (!row) return drawHelp();
  byId('panel-title').textContent = row.name;
  byId('panel-body').replaceChildren(html('p', { class: 'dim', text: 'Asking where it is stuck …' }));
  byId('panel').scrollTop = 0;
  retrace();
}

/** Opens the connector that the address names. */
function restoreSelection() {
  const id = new URLSearchParams(location.hash.slice(1)).get('connector');
  const row = fleet.rows.get(id) ?? [...fleet.rows.values()].find((it) => it.name === id);
  if (!row || state.selected === row.id) return;
  row.open = true;
  arrange();
  select(row.id);
  goTo(state.shown.indexOf(row));
}
