// The fleet as the server last told it, and what each hop said during the last minutes.
// Every text comes from clusters and is untrusted, so it is only ever shown by textContent.

/** As long as the server keeps hops. */
const KEPT_MS = 15 * 60e3;
/** From the worst to the best. */
const STATES = ['stuck', 'unknown', 'held', 'pending', 'ok'];
const TONES_OF = { stuck: 'wrong', unknown: 'warn', held: 'warn', pending: 'warn' };

const fleet = {
  /** The server's time in its last event, and this page's when it came. */
  at: 0,
  received: 0,
  /** The state's other fields, as `/state` has them; null until the first event. */
  head: null,
  rows: new Map(),
  /** The past of each lane: changes and problems, by hop, cluster and connector. */
  past: new Map(),
};

const keyOf = (object) => (object ? `${object.namespace}/${object.name}` : '');
const laneKey = (hop, cluster, connector) => JSON.stringify([hop, cluster, connector]);
/** As the server forms it. */
const idOf = ({ name, upstream }) => (name ? keyOf(name) : upstream ? `${upstream.cluster}: ${keyOf(upstream)}` : '');

function pastOf(key) {
  if (!fleet.past.has(key)) fleet.past.set(key, { changes: [], problems: [] });
  return fleet.past.get(key);
}

/** A hop may come again when the page has lost its connection. */
function takeHop([at, hop, cluster, namespace, name, online]) {
  const { changes } = pastOf(laneKey(hop, cluster, `${namespace}/${name}`));
  const last = changes.at(-1);
  if (!last || at > last.at) changes.push({ at, online });
  else if (at === last.at) last.online = online;
}

const grouped = (items, key) => [...Map.groupBy(items, key).values()];

/** What a lane says now; null where that is not known. Gateways announce what their edge has, once all do. */
function onlineOf(hops) {
  const [{ hop, says, expected, state }] = hops;
  if (hop === 'announced') return hops.every((it) => it.state === 'ok' && !it.cause) ? expected?.online ?? null : null;
  return state === 'unknown' ? null : says?.online ?? null;
}

/** Brings the past of a lane to its present. */
function takeLane(given, hops) {
  const [{ hop, cluster }] = hops;
  const key = laneKey(hop, cluster, keyOf(hop === 'upstream' ? given.upstream : given.name));
  const past = pastOf(key);
  const last = past.changes.at(-1);
  const online = onlineOf(hops);
  if (last ? last.online !== online : online !== null) {
    const at = (online === null ? null : hops[0].sinceMs) ?? fleet.at;
    past.changes.push({ at: last && at <= last.at ? fleet.at : at, online });
  }
  const stuck = hops.find((it) => it.state === 'stuck');
  const cause = stuck?.cause ?? 'stuck';
  const open = past.problems.find((problem) => problem.ended_ms === null);
  const goesOn = open && stuck && open.cause === cause;
  if (open && !goesOn) open.ended_ms = fleet.at;
  if (stuck && !goesOn) past.problems.push({ cause, severity: 'error', since_ms: open?.ended_ms ?? stuck.sinceMs ?? fleet.at, ended_ms: null });
  return { hop, cluster, key, changes: past.changes, problems: past.problems };
}

/** The first of the worst hops; where all are ok, the first of which there is something to say. */
const worstOf = ({ state, hops }) => hops.find((hop) => (state === 'ok' ? hop.cause : hop.state === state)) ?? null;

/** Whether an object is not known to have what it should. */
const isBehind = (hop) => hop.state !== 'ok' && (hop.hop === 'upstream' || JSON.stringify(hop.says) !== JSON.stringify(hop.expected));

/** How many gateways announce what their edge has. What throughline does not touch does not count. */
function gatewaysText(hops) {
  const gateways = hops.filter((hop) => hop.hop === 'announced' && hop.object && hop.cause !== 'rule_off');
  if (!gateways.length) return '';
  if (gateways.some((hop) => hop.state === 'unknown')) return `?/${gateways.length} announced`;
  const isStale = hops.some((hop) => hop.hop !== 'announced' && isBehind(hop));
  return `${gateways.filter((hop) => hop.state === 'ok').length}/${gateways.length} announced${isStale ? ', stale' : ''}`;
}

/** Takes a connector; returns whether it has changed. */
function takeRow(given) {
  const id = idOf(given);
  const json = JSON.stringify(given);
  const former = fleet.rows.get(id);
  if (former?.json === json) return false;
  const name = keyOf(given.upstream) || keyOf(given.name);
  const worst = worstOf(given);
  const hops = given.hops.filter((hop) => hop.cause !== 'no_gateway');
  const words = [name, id, given.state, given.online === null ? '' : stateWord(given.online), worst?.cause, worst?.message, ...given.hops.map((hop) => hop.cluster)];
  fleet.rows.set(id, {
    ...given, id, json, name, at: keyOf(given.name), worst, open: former?.open ?? false,
    lanes: grouped(hops, (hop) => laneKey(hop.hop, hop.cluster)).map((lane) => takeLane(given, lane)),
    sinceMs: given.state === 'ok' ? Math.max(0, ...hops.map((hop) => hop.sinceMs ?? 0)) : worst?.sinceMs,
    gateways: gatewaysText(hops),
    search: words.filter(Boolean).join('\n').toLowerCase(),
  });
  return true;
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

/** Takes an event: the whole fleet, or its changes. Returns the ids of the rows that changed. */
function take({ connectors = [], removed = [], hops = [], ...head }, isWhole) {
  // Another instance, or another run of it: what happened in between is not known.
  if (isWhole && JSON.stringify(head.instance) !== JSON.stringify(fleet.head?.instance)) {
    fleet.past.clear();
    for (const row of fleet.rows.values()) row.json = null;
  }
  fleet.at = head.atMs ?? fleet.at;
  fleet.received = performance.now();
  fleet.head = { ...fleet.head, ...head };
  hops.forEach(takeHop);
  const changed = new Set(connectors.filter(takeRow).map(idOf));
  const left = new Set(isWhole ? connectors.map(idOf) : []);
  const gone = isWhole ? [...fleet.rows.keys()].filter((id) => !left.has(id)) : removed;
  for (const id of gone) {
    fleet.rows.delete(id);
    changed.add(id);
  }
  return changed;
}

/** The server's time now, as far as this page can tell. */
const serverNow = () => Math.round(fleet.at + performance.now() - fleet.received);

const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
const byWorst = (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state)
  || (a.state === 'ok' ? 0 : (a.sinceMs ?? Infinity) - (b.sinceMs ?? Infinity) || 0) || byName(a, b);
