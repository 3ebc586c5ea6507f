// The panel describes the selected moment: the hops, what happened, the story around it.

/** How many entries of the story to show before and after the selected one. */
const AROUND = 30;
const ACTIONS_MAX = 60;

function outageText(span) {
  const gateways = count(span.gateways, 'gateway');
  const lasted = `${span.isOpen ? 'at least ' : ''}${duration(span.until - span.from)}`;
  const first = span.firstRecovered !== null && span.firstRecovered < span.until ? `; the first gateway recovered after ${duration(span.firstRecovered - span.from)}` : '';
  const key = span.byPlatformKey ? '; counted as over when the platform’s own key was written; Envoy Gateway ignores that key, so it may have lasted longer' : '';
  return `${symptomOf(span.kind)} for ${lasted}, ${PROGRAMMED[span.kind]}, ${gateways}${first}${key}`;
}

function problemText(problem) {
  const lasted = duration((problem.ended_ms ?? report.ended_ms) - problem.since_ms);
  return `${words(problem.cause)} for ${lasted}${problem.ended_ms === null ? ', not over at the end' : ''}: ${problem.message}`;
}

const hashOf = (row, at) => `#connector=${encodeURIComponent(row.isRest ? row.label : row.key)}&t=${at}`;

function tableOf(caption, heads, lines) {
  const cell = (text, i) => (i === 0 ? html('th', { scope: 'row' }, [text]) : html('td', {}, [text]));
  return html('table', {}, [
    html('caption', { text: caption, hidden: true }),
    html('thead', {}, [html('tr', {}, heads.map((text) => html('th', { scope: 'col', text })))]),
    html('tbody', {}, lines.map((line) => html('tr', {}, line.map(cell)))),
  ]);
}

/** The state of each hop at a moment. */
function hopsAt(row, at) {
  const lines = row.lanes.map((lane) => {
    const change = stateAt(lane, at);
    const problem = lane.problems.find((p) => p.since_ms <= at && (p.ended_ms ?? Infinity) >= at);
    const since = change ? `${clock(change.at)}${change.after === undefined ? '' : `, after ${duration(change.after)}`}` : 'not known yet';
    const reported = html('span', { text: change ? stateWord(change.online) : '–' });
    return [`${HOP_TITLES[lane.hop]} · ${lane.cluster}`, reported, problem ? prose(`${since}; ${words(problem.cause)}: ${problem.message}`) : since];
  });
  return tableOf('Hops at this moment', ['hop', 'state', 'since'], lines);
}

function usersAt(row, at) {
  return row.users.map((lane) => {
    const spans = lane.spans.filter((s) => s.from <= at && at < Math.max(s.until, s.from + 1));
    const what = spans.length ? spans.map(outageText).join('; and ') : at > lane.end ? 'after the end of the recording' : 'no outage';
    return html('p', {}, [html('span', { class: 'dim', text: `${lane.title} · ${lane.edge}: ` }), prose(what, { class: spans.length ? 'bad' : '' })]);
  });
}

function actionLine(id) {
  const action = actionsById.get(id);
  if (!action) return null;
  const took = action.finished_at_ms === null ? '' : `, after ${duration(action.finished_at_ms - action.at_ms)}`;
  const error = action.error ? `: ${action.error}` : '';
  return html('li', {}, [
    html('span', { text: `#${id} ${action.type} ${action.kind} ${action.namespace}/${action.name} at ${action.cluster} → ` }),
    html('strong', { class: action.outcome === 'applied' || action.outcome === 'unchanged' ? 'good' : 'bad', text: action.outcome ?? 'outcome unknown' }),
    prose(`${took}${error}`),
    html('div', { class: 'dim' }, [prose(`reason: ${action.because}`)]),
  ]);
}

function storyLine(row, item, current) {
  return html('li', { class: current ? 'cur' : null, 'aria-current': current ? 'true' : null }, [
    html('span', { class: 'when', text: clock(item.at) }),
    button(brief(item.text), () => goTo(row, row.story.indexOf(item), true), { class: 'link' }),
  ]);
}

/** The latest entries at or before a moment. */
function latestEntries(row, at) {
  const after = lowerBound(row.story, at + 1, (e) => e.at);
  const last = row.story[after - 1];
  return last ? row.story.slice(lowerBound(row.story, last.at, (e) => e.at), after) : [];
}

function drawHelp() {
  byId('panel-title').textContent = 'Nothing selected';
  byId('panel-body').replaceChildren(...[
    html('p', { class: 'dim', text: 'Select a mark, or any moment in a row, to see the state of each hop, what happened and why. The page’s address then links to that moment.' }),
    html('h3', { text: 'How to read it' }),
    html('p', { text: 'Each row is a connector. Expanded, it has a lane for each hop: the upstream status, the hub annotation, the copy at each edge, and the state that all gateways at the edge announce. When they disagree for long, users notice: the last lanes show what they saw.' }),
    isVerify ? null : html('p', { class: 'dim', text: 'Hops and marks show throughline acting on the recorded changes. “In the recording” is what users really saw.' }),
  ].filter(Boolean));
}

function drawPanel() {
  byId('panel').classList.toggle('empty', !state.selected);
  if (!state.selected) return drawHelp();
  const { row, at } = state.selected;
  byId('panel-title').textContent = row.label;
  const now = latestEntries(row, at);
  const ids = now.flatMap((item) => item.actions);
  const from = Math.max(0, (now.length ? row.story.indexOf(now[0]) : 0) - AROUND);
  const around = row.story.slice(from, from + 2 * AROUND + now.length);
  const place = row.hubName && row.hubName !== row.fullName ? `${row.fullName}; at the hub and the edges: ${row.hubName}` : row.fullName;
  byId('panel-body').replaceChildren(...[
    html('p', { class: 'dim', text: place }),
    html('p', { class: 'now', text: `${clock(at)} UTC, ${offset(at)}` }),
    ...now.map((item) => html('div', { class: 'entry' }, [prose(item.at === at ? item.text : `${duration(at - item.at)} earlier: ${item.text}`)])),
    row.lanes.length ? html('h3', { text: 'Hops at this moment' }) : null,
    row.lanes.length ? hopsAt(row, at) : null,
    row.users.length ? html('h3', { text: 'Users' }) : null,
    ...usersAt(row, at),
    ids.length ? html('h3', { text: count(ids.length, 'action') }) : null,
    ids.length ? html('ul', { class: 'acts' }, ids.slice(0, ACTIONS_MAX).map(actionLine)) : null,
    ids.length > ACTIONS_MAX ? html('p', { class: 'dim', text: `… ${ids.length - ACTIONS_MAX} more` }) : null,
    around.length ? html('h3', { text: `Story${around.length < row.story.length ? `, ${around.length} of ${row.story.length} entries` : ''}` }) : null,
    around.length ? html('ol', { class: 'entries' }, around.map((item) => storyLine(row, item, now.includes(item)))) : null,
    html('p', {}, [html('a', { href: hashOf(row, at), text: 'Link to this moment' })]),
  ].filter(Boolean));
  byId('panel').scrollTop = 0;
}

let linking = 0;

/** Selects a moment of a row, or nothing, and updates the panel and the address. */
function select(row, at) {
  state.selected = row ? { row, at: Math.round(at) } : null;
  if (row && state.at.row !== row) state.at = { row, entry: -1 };
  drawPanel();
  redraw();
  clearTimeout(linking);
  // Browsers limit how often the address may change.
  linking = setTimeout(() => {
    const hash = state.selected ? hashOf(state.selected.row, state.selected.at) : location.pathname;
    try {
      history.replaceState(null, '', hash);
    } catch {
      // Some viewers of local files refuse; the link in the panel remains.
    }
  }, 120);
}

/** Selects the moment in the address, if it names a connector on this page. */
function restoreSelection() {
  const given = new URLSearchParams(location.hash.slice(1));
  const name = given.get('connector');
  if (!name) return;
  const row = rows.find((it) => it.key === name) || rows.find((it) => [it.label, it.hubName, it.fullName].includes(name));
  if (!row) return;
  if (!state.shown.includes(row)) byId('filter').value = '';
  row.open = true;
  arrange();
  const at = Number(given.get('t') || NaN);
  if (!(at >= whole.from && at <= whole.to)) return goTo(row, -1);
  if (at < state.view.from || at > state.view.to) fit();
  select(row, at);
  reveal(row);
}
