// The fleet as the server last told it, and what each hop said during the last minutes.
// Every text comes from clusters and is untrusted, so it is only ever shown by textContent.

/** As long as the server keeps hops. */
const KEPT_MS = 15 * 60e3;
/** From the worst to the best. */
const STATES = ['wrong', 'unknown', 'pending', 'deferred', 'ok'];
const STATE_WORDS = { wrong: 'stuck', unknown: 'unknown', pending: 'pending', deferred: 'deferred', ok: 'ok' };
const HOP_NAMES = { upstream: 'upstream', mirrored: 'mirrored', arrived: 'carried', touched: 'announced' };

const fleet = {
  /** The server's time in its last event, and this page's when it came. */
  at: 0,
  received: 0,
  /** The id of the last event. */
  id: null,
  head: null,
  rows: new Map(),
  /** The past of each lane: changes and problems, by hop, cluster and connector. */
  past: new Map(),
};

const keyOf = (object) => (object ? `${object.namespace}/${object.name}` : '');
const laneKey = (hop, cluster, connector) => JSON.stringify([hop, cluster, connector]);

function pastOf(key) {
  if (!fleet.past.has(key)) fleet.past.set(key, { changes: [], problems: [] });
  return fleet.past.get(key);
}

function takeHop([at, hop, cluster, namespace, name, online]) {
  const { changes } = pastOf(laneKey(hop, cluster, `${namespace}/${name}`));
  const last = changes.at(-1);
  if (!last || at >= last.at) changes.push({ at, online });
}

/** Brings the past of a lane to its present. */
function takeLane(row, lane) {
  const key = laneKey(lane.hop, lane.cluster, keyOf(lane.hop === 'upstream' ? row.upstream : row.replica));
  const past = pastOf(key);
  const last = past.changes.at(-1);
  if (last ? last.online !== lane.online : lane.online !== null) {
    const at = lane.online === null ? fleet.at : lane.sinceMs ?? fleet.at;
    past.changes.push({ at: last && at <= last.at ? fleet.at : at, online: lane.online });
  }
  const problem = past.problems.at(-1);
  const isOpen = problem && problem.ended_ms === null;
  if (lane.stalledMs && !isOpen) past.problems.push({ cause: 'stalled', severity: 'error', since_ms: lane.stalledMs, ended_ms: null });
  if (!lane.stalledMs && isOpen) problem.ended_ms = fleet.at;
  return { hop: lane.hop, cluster: lane.cluster, key, changes: past.changes, problems: past.problems };
}

/** The first hop that disagrees or is not known, if a person has to look. */
const troubleOf = (row) => row.stuck ?? row.unknown ?? null;

function takeRow(given) {
  const former = fleet.rows.get(given.id);
  const name = keyOf(given.upstream) || keyOf(given.replica);
  const clusters = [given.upstream?.cluster, ...given.hubs, ...given.edges].filter(Boolean);
  fleet.rows.set(given.id, {
    ...given, name, lanes: given.lanes.map((lane) => takeLane(given, lane)), open: former?.open ?? false,
    search: [name, given.id, ...clusters, given.phase, troubleOf(given)?.why ?? ''].join('\n').toLowerCase(),
  });
}

/** Forgets what is older than any lane shows, except for the state at its beginning. */
function forgetPast() {
  const oldest = fleet.at - KEPT_MS;
  const kept = new Set([...fleet.rows.values()].flatMap((row) => row.lanes.map((lane) => lane.key)));
  for (const [key, past] of fleet.past) {
    const from = Math.max(0, lowerBound(past.changes, oldest, (change) => change.at) - 1);
    past.changes.splice(0, from);
    past.problems = past.problems.filter((problem) => (problem.ended_ms ?? Infinity) > oldest);
    if (!kept.has(key) && !(past.changes.at(-1)?.at > oldest)) fleet.past.delete(key);
  }
  for (const row of fleet.rows.values()) for (const lane of row.lanes) lane.problems = pastOf(lane.key).problems;
}

/** Takes an event: the whole fleet, or its changes. Returns the ids of the rows that changed; null: all. */
function take(event, isWhole) {
  fleet.at = event.atMs;
  fleet.received = performance.now();
  if (isWhole) {
    fleet.past.clear();
    const open = new Set([...fleet.rows.values()].filter((row) => row.open).map((row) => row.id));
    fleet.rows.clear();
    (event.hops ?? []).forEach(takeHop);
    event.rows.forEach(takeRow);
    for (const id of open) if (fleet.rows.has(id)) fleet.rows.get(id).open = true;
  } else {
    (event.hops ?? []).forEach(takeHop);
    (event.rows ?? []).forEach(takeRow);
    (event.removed ?? []).forEach((id) => fleet.rows.delete(id));
  }
  if (event.head) fleet.head = event.head;
  return isWhole ? null : new Set([...(event.rows ?? []).map((row) => row.id), ...(event.removed ?? [])]);
}

/** The server's time now, as far as this page can tell. */
const serverNow = () => Math.round(fleet.at + performance.now() - fleet.received);

const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const byWorst = (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state)
  || (a.state === 'ok' ? 0 : (a.sinceMs ?? Infinity) - (b.sinceMs ?? Infinity) || 0) || byName(a, b);
