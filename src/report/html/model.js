'use strict';
// The report, read into rows that can be drawn: sorted, searchable, nothing looked up twice.
// Whatever it holds came from a log: it is shown by textContent alone.

const report = JSON.parse(document.getElementById('data').textContent);
const isVerify = report.mode === 'verify';
const whole = { from: report.from_ms, to: Math.max(report.ended_ms, report.to_ms, report.from_ms + 1) };
const actionsById = new Map(report.actions.map((action) => [action.id, action]));
const HOPS = ['upstream', 'mirrored', 'arrived', 'touched'];
const HOP_TITLES = { upstream: 'upstream', mirrored: 'hub annotation', arrived: 'edge copy', touched: 'gateways announce' };
/** Which of several things at one place is shown: the one a reader must not miss. */
const RANKS = ['arrived', 'mirrored', 'touched', 'confirm', 'stall_ended', 'orphan', 'touch', 'nudge', 'mirror', 'delete', 'upstream', 'anomaly', 'stalled'];

const pad = (n, width) => String(n).padStart(width, '0');

/** `09:20:13.042`, UTC. */
function clock(ms) {
  return new Date(ms).toISOString().slice(11, 23);
}

/** `+2.061 s` after the first line of the log. */
function offset(ms) {
  const since = ms - report.from_ms;
  const whole = Math.abs(since);
  return `${since < 0 ? '−' : '+'}${Math.floor(whole / 1000)}.${pad(whole % 1000, 3)} s`;
}

/** `85 ms`, `2.06 s`, `52.2 s`, `1 min 15 s`, `2 h 5 min`, as the text report says them. */
function duration(ms) {
  const two = (n, unit, rest, restUnit) => (rest ? `${n} ${unit} ${rest} ${restUnit}` : `${n} ${unit}`);
  const seconds = Math.round(ms / 1000);
  const minutes = Math.round(ms / 60000);
  const hours = Math.round(ms / 3600000);
  if (ms < 1000) return `${ms} ms`;
  if (Math.round(ms / 10) < 1000) return `${(Math.round(ms / 10) / 100).toFixed(2)} s`;
  if (Math.round(ms / 100) < 600) return `${(Math.round(ms / 100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  if (minutes < 1440) return two(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

const count = (n, one, many) => (n === 1 ? `1 ${one}` : `${n === 0 ? 'no' : n.toLocaleString('en')} ${many || one + 's'}`);
const say = (online) => (online ? 'online' : 'offline');

/** The first index whose item is not before `ms`. */
function lowerBound(items, ms, at) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(items[middle]) < ms) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What became of actions: `applied`, `unchanged`, `open` (unknown yet), or `bad`. */
function fateOf(ids) {
  let fate = 'applied';
  for (const id of ids) {
    const outcome = actionsById.get(id)?.outcome ?? null;
    if (outcome === 'applied') continue;
    if (outcome === 'unchanged' || outcome === 'superseded') fate = fate === 'applied' ? 'unchanged' : fate;
    else if (outcome === null) fate = fate === 'bad' ? fate : 'open';
    else fate = 'bad';
  }
  return fate;
}

function entry(row) {
  const actions = row.actions || [];
  return { at: row.at_ms, kind: row.kind, online: row.online, text: row.text, actions, fate: fateOf(actions) };
}

const byTime = (a, b) => a.at - b.at;
const replicaOf = (it) => (it.name === null ? '' : `${it.namespace}/${it.name}`);

/** One lane for each hop and cluster, in the order of the way. */
function lanesOf(hops, stalls) {
  const lanes = new Map();
  const lane = (hop, cluster) => {
    const key = JSON.stringify([hop, cluster]);
    if (!lanes.has(key)) lanes.set(key, { hop, cluster, changes: [], stalls: [] });
    return lanes.get(key);
  };
  for (const hop of hops) lane(hop.hop, hop.cluster).changes.push({ at: hop.at_ms, online: hop.online, after: hop.after_ms });
  for (const stall of stalls) lane(stall.hop, stall.cluster).stalls.push(stall);
  const order = (l) => HOPS.indexOf(l.hop);
  return [...lanes.values()].sort((a, b) => order(a) - order(b) || (a.cluster < b.cluster ? -1 : 1));
}

const roles = new Set(report.clusters.flatMap((cluster) => cluster.roles));
/** Why nothing is known of what users saw, where that is so. */
const blind = ['upstream', 'edge'].filter((role) => !roles.has(role)).map((role) => `the log has no ${role} cluster`)[0];

/** Two lanes for each edge: what users saw, and what they would have. */
function usersOf(lanes, recorded, replayed) {
  const edges = new Set([...recorded, ...replayed].map((outage) => outage.edge));
  if (!blind) {
    lanes.filter((l) => l.hop === 'touched').forEach((l) => edges.add(l.cluster));
  }
  const span = (end) => (o) => ({
    from: o.from_ms, until: o.until_ms ?? end, isOpen: o.until_ms === null, firstRight: o.first_right_ms,
    kind: o.kind, gateways: o.gateways, byKey: o.by_platform_key,
  });
  const side = (title, outages, edge, end) => ({
    title, edge, end, spans: outages.filter((o) => o.edge === edge).map(span(end)).sort((a, b) => a.from - b.from),
  });
  return [...edges].sort().flatMap((edge) => {
    const seen = side(isVerify ? 'users' : 'users, as recorded', recorded, edge, report.to_ms);
    return isVerify ? [seen] : [seen, side('users, with throughline', replayed, edge, report.ended_ms)];
  });
}

const painOf = (kind) => (kind === 'stale_online' ? 'dead tunnel' : '503');
const PROGRAMMED = { offline: 'programmed offline', other_node: 'programmed to another node', stale_online: 'programmed online' };

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const name = key(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return (name) => groups.get(name) || [];
}

function spell(anomaly) {
  const object = anomaly.name === null ? '' : ` ${anomaly.namespace}/${anomaly.name}`;
  return { at: anomaly.at_ms, kind: 'anomaly', text: `${anomaly.anomaly.replaceAll('_', ' ')}, ${anomaly.cluster}${object}: ${anomaly.detail}`, actions: [], fate: 'applied' };
}

/** A row for each connector, and one for what is about none, where there is such. */
function readRows() {
  const stalls = grouped(report.stalls, (s) => s.connector);
  const recorded = grouped(report.outages.recorded, replicaOf);
  const replayed = grouped(report.outages.replayed, replicaOf);
  const anomalies = grouped(report.anomalies, replicaOf);
  const known = new Set();
  const rows = report.connectors.map((connector, i) => {
    const part = report.picture.connectors[i];
    const replica = replicaOf(connector);
    const upstream = connector.upstream ? `${connector.upstream.namespace}/${connector.upstream.name}` : '';
    const own = [...(replica ? stalls(replica) : []), ...(upstream && upstream !== replica ? stalls(upstream) : [])];
    known.add(replica);
    const lanes = lanesOf(connector.hops, own);
    const users = replica ? usersOf(lanes, recorded(replica), replayed(replica)) : [];
    const story = part.story.map(entry).concat(replica ? anomalies(replica).map(spell) : []).sort(byTime);
    const total = (side) => part.figures.reduce((sum, figure) => sum + (figure[side]?.ms ?? 0), 0);
    return {
      label: part.label, key: part.key, place: part.place, replica, lanes, users, story, figures: part.figures,
      stuck: own.some((s) => s.ended_at_ms === null), stalls: own.length, actions: connector.actions.length,
      suffered: total('recorded'), open: false,
      search: [part.label, part.key, part.place, replica, ...lanes.map((l) => l.cluster)].join('\n').toLowerCase(),
    };
  });
  const orphan = (o) => ({
    at: o.at_ms, kind: 'orphan', actions: [], fate: 'applied',
    text: `${o.namespace}/${o.name} at ${o.cluster}: ${o.kept_because ? 'kept: ' + o.kept_because : 'an orphan'}`,
  });
  // Anomalies and routes are the whole log's; where one connector was asked for, others' are left out.
  const rest = report.picture.only ? [] : report.picture.others.map(entry)
    .concat(report.anomalies.filter((a) => !known.has(replicaOf(a))).map(spell), report.orphans.map(orphan)).sort(byTime);
  if (rest.length) {
    rows.push({
      label: 'about no one connector', key: null, place: 'routes, anomalies', replica: '', lanes: [], users: [], story: rest, figures: [],
      stuck: false, stalls: 0, actions: rest.reduce((n, e) => n + e.actions.length, 0), suffered: -1, open: false, search: 'about no one connector', isRest: true,
    });
  }
  return rows;
}

const rows = readRows();
const byWorst = (a, b) => Number(!!a.isRest) - Number(!!b.isRest) || b.stuck - a.stuck || b.suffered - a.suffered || b.story.length - a.story.length;

/** What a lane said at a moment: the change, or nothing where none was told before. */
function stateAt(lane, ms) {
  const after = lowerBound(lane.changes, ms + 1, (c) => c.at);
  return after > 0 ? lane.changes[after - 1] : null;
}

/** The figures of a connector in words, for one pain. */
function figureWords(row, pain, side) {
  const parts = row.figures.filter((f) => f.pain === pain && f[side]);
  return parts.map((f) => (parts.length > 1 ? `${f.edge}: ${f[side].words}` : f[side].words)).join('; ') || (blind ? 'not known' : 'none');
}
