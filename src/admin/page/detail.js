// The panel: one connector's hops, where it is stuck, why, and what to do.

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

/** A text whose code is between backticks. */
const withCode = (text, codeOf = (code) => html('code', { text: code })) => text.split('`').map((part, i) => (i % 2 ? codeOf(part) : html('span', { text: part })));

/** The commands of a remedy can be copied; one that belongs to a cluster says so. */
function remedy(text) {
  const codeOf = (code) => {
    const [, at, run] = /^(at [^:]+:)? ?((?:kubectl|throughline|echo) .*)$/s.exec(code) ?? [];
    return run ? html('div', {}, [at && html('span', { text: at }), command(run)]) : html('code', { text: code });
  };
  return html('div', { class: 'remedy' }, withCode(text, codeOf));
}

/** A moment that stays true while the panel is open. */
function timeText(ms) {
  const [day, time] = new Date(ms).toISOString().split('T');
  return `${day === new Date(fleet.at).toISOString().slice(0, 10) ? '' : `${day} `}${time.slice(0, 8)} UTC`;
}

/** Gateways at one edge that are in the same state for the same reason are one line. */
function hopLine(hops) {
  const [hop] = hops;
  const names = hop.hop === 'announced' ? hops.map((it) => it.object?.name).filter(Boolean) : [];
  const gateways = names.length ? `: ${names.slice(0, 3).join(', ')}${names.length > 3 ? ` and ${names.length - 3} more` : ''}` : '';
  const says = hop.says ? `, ${stateWord(hop.says.online)}` : '';
  const expected = hop.expected && hop.says && hop.expected.online !== hop.says.online ? `, expected ${stateWord(hop.expected.online)}` : '';
  const since = hop.sinceMs ? `, since ${hop.atLeast ? 'before ' : ''}${timeText(hop.sinceMs)}` : '';
  const why = [hop.cause && words(hop.cause), hop.message].filter(Boolean).join(': ');
  return html('li', {}, [
    html('span', { class: `state ${hop.state}`, text: hop.state }),
    html('span', { text: ` · ${hop.hop} (${hop.cluster}${gateways})${says}${expected}${since}` }),
    ...[why, ...hop.evidence ?? []].filter(Boolean).map((text) => html('div', { class: 'dim' }, [prose(text)])),
  ]);
}

function drawPanel() {
  const row = fleet.rows.get(state.selected);
  const { worst } = row;
  const isBad = row.state !== 'ok';
  const upstream = row.upstream ? `${keyOf(row.upstream)} in ${row.upstream.cluster}` : '';
  const place = row.at ? `at the hub and the edges: ${row.at}` : 'no hub has it';
  const next = worst?.nextAttemptMs ? html('p', { class: 'dim', text: `Next attempt at ${timeText(worst.nextAttemptMs)}.` }) : null;
  const hops = grouped(row.hops, (hop) => JSON.stringify([hop.hop, hop.cluster, hop.hop === 'announced' ? [hop.state, hop.cause, hop.message] : hop.object]));
  byId('panel-title').textContent = row.name;
  byId('panel-body').replaceChildren(...[
    html('p', { class: 'dim', text: [upstream, place].filter(Boolean).join('; ') }),
    html('p', { class: `verdict ${row.state === 'stuck' ? 'bad' : ''}`, text: isBad ? `${row.state[0].toUpperCase()}${row.state.slice(1)} at ${placeOf(worst)}` : 'Every hop agrees.' }),
    worst?.cause ? html('p', {}, [prose([words(worst.cause), worst.message].filter(Boolean).join(': '))]) : null,
    next,
    worst?.remedy ? html('h3', { text: 'What to do' }) : null,
    worst?.remedy ? remedy(worst.remedy) : null,
    html('h3', { text: 'Hops' }),
    html('ul', { class: 'hops' }, hops.map(hopLine)),
  ].filter(Boolean));
}

/** Shows a connector in the panel, or none. */
function select(id) {
  if (state.selected === id) return;
  const row = fleet.rows.get(id);
  state.selected = id;
  byId('panel').classList.toggle('empty', !row);
  redraw();
  history.replaceState(null, '', row ? `#connector=${encodeURIComponent(id)}` : location.pathname);
  if (!row) return drawHelp();
  byId('panel').scrollTop = 0;
  drawPanel();
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
