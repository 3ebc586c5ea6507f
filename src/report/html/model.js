// Turns the report into rows that are ready to draw: sorted and searchable.
// Its content comes from a log and is untrusted, so it is only ever shown by textContent.

const report = JSON.parse(document.getElementById('data').textContent);
const isVerify = report.mode === 'verify';
const whole = { from: report.from_ms, to: Math.max(report.ended_ms, report.to_ms, report.from_ms + 1) };
const actionsById = new Map(report.actions.map((action) => [action.id, action]));
/** From the least to the most important kind: of several entries at one place, the last shows. */
const RANKS = ['carried', 'mirrored', 'announced', 'confirm', 'ended', 'touch', 'nudge', 'mirror', 'delete', 'upstream', 'began'];

/** `+2.061 s` after the first line of the log. */
function offset(ms) {
  const since = ms - report.from_ms;
  const whole = Math.abs(since);
  return `${since < 0 ? '−' : '+'}${Math.floor(whole / 1000)}.${pad(whole % 1000, 3)} s`;
}

/** The outcome of actions taken together: `applied`, `unchanged`, `unknown` or `failed`. */
function outcomeOf(ids) {
  let result = 'applied';
  for (const id of ids) {
    const outcome = actionsById.get(id)?.outcome ?? null;
    if (outcome === 'applied') continue;
    if (outcome === 'unchanged' || outcome === 'superseded') result = result === 'applied' ? 'unchanged' : result;
    else if (outcome === null) result = result === 'failed' ? result : 'unknown';
    else result = 'failed';
  }
  return result;
}

function entry(row) {
  const actions = row.actions || [];
  return { at: row.at_ms, kind: row.kind, online: row.online, severity: row.severity, text: row.text, actions, outcome: outcomeOf(actions) };
}

const hubNameOf = (it) => (it.name === null ? '' : `${it.namespace}/${it.name}`);

/** One lane for each hop and cluster, in the order of the hops. */
function lanesOf(hops, problems) {
  const lanes = new Map();
  const lane = (hop, cluster) => {
    const key = JSON.stringify([hop, cluster]);
    if (!lanes.has(key)) lanes.set(key, { hop, cluster, changes: [], problems: [] });
    return lanes.get(key);
  };
  for (const hop of hops) lane(hop.hop, hop.cluster).changes.push({ at: hop.at_ms, online: hop.online, after: hop.after_ms });
  for (const problem of problems) {
    // A write that fails delays the hop that it would complete.
    const hop = problem.hop ?? (problem.about.kind === 'Gateway' ? 'announced' : 'mirrored');
    if (problem.hop || lanes.has(JSON.stringify([hop, problem.about.cluster]))) lane(hop, problem.about.cluster).problems.push(problem);
  }
  const order = (l) => HOPS.indexOf(l.hop);
  return [...lanes.values()].sort((a, b) => order(a) - order(b) || (a.cluster < b.cluster ? -1 : 1));
}

const roles = new Set(report.clusters.flatMap((cluster) => cluster.roles));
/** Why it is unknown what users saw; undefined if it is known. */
const unknownBecause = ['upstream', 'edge'].filter((role) => !roles.has(role)).map((role) => `the log has no ${role} cluster`)[0];

/** Two lanes for each edge: what users saw, and what they would have seen with throughline. */
function userLanesOf(lanes, recorded, replayed) {
  const edges = new Set([...recorded, ...replayed].map((outage) => outage.edge));
  if (!unknownBecause) {
    lanes.filter((l) => l.hop === 'announced').forEach((l) => edges.add(l.cluster));
  }
  const span = (end) => (o) => ({
    from: o.from_ms, until: o.until_ms ?? end, isOpen: o.until_ms === null, firstRecovered: o.first_right_ms,
    kind: o.kind, gateways: o.gateways, byPlatformKey: o.by_platform_key,
  });
  const side = (title, outages, edge, end) => ({
    title, edge, end, spans: outages.filter((o) => o.edge === edge).map(span(end)).sort((a, b) => a.from - b.from),
  });
  return [...edges].sort().flatMap((edge) => {
    const seen = side(isVerify ? 'users' : 'users, in the recording', recorded, edge, report.to_ms);
    return isVerify ? [seen] : [seen, side('users, with throughline', replayed, edge, report.ended_ms)];
  });
}

const symptomOf = (kind) => (kind === 'stale_online' ? 'dead tunnel' : '503');
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

/** A row for each connector, and one for everything else if there is anything else. */
function readRows() {
  const recorded = grouped(report.outages.recorded, hubNameOf);
  const replayed = grouped(report.outages.replayed, hubNameOf);
  const rows = report.connectors.map((connector, i) => {
    const part = report.picture.connectors[i];
    const hubName = hubNameOf(connector);
    const problems = part.problems.map((at) => report.problems[at]);
    const lanes = lanesOf(connector.hops, problems);
    const users = hubName ? userLanesOf(lanes, recorded(hubName), replayed(hubName)) : [];
    const story = part.story.map(entry);
    const total = (side) => part.figures.reduce((sum, figure) => sum + (figure[side]?.ms ?? 0), 0);
    return {
      label: part.label, key: part.key, fullName: part.full_name, hubName, lanes, users, story, figures: part.figures,
      stuck: problems.some((p) => p.severity === 'error' && p.ended_ms === null), problems: problems.length, actions: connector.actions.length,
      outageMs: total('recorded'), open: false,
      search: [part.label, part.key, part.full_name, hubName, ...lanes.map((l) => l.cluster)].join('\n').toLowerCase(),
    };
  });
  const rest = report.picture.others.map(entry);
  if (rest.length) {
    rows.push({
      label: 'not tied to one connector', key: null, fullName: 'routes, clusters', hubName: '', lanes: [], users: [], story: rest, figures: [],
      stuck: false, problems: 0, actions: rest.reduce((n, e) => n + e.actions.length, 0), outageMs: -1, open: false, search: 'not tied to one connector', isRest: true,
    });
  }
  return rows;
}

const rows = readRows();
const byWorst = (a, b) => Number(!!a.isRest) - Number(!!b.isRest) || b.stuck - a.stuck || b.outageMs - a.outageMs || b.story.length - a.story.length;

/** A lane's latest change up to a moment, or null. */
function stateAt(lane, ms) {
  const after = lowerBound(lane.changes, ms + 1, (c) => c.at);
  return after > 0 ? lane.changes[after - 1] : null;
}

/** The figures of a connector for one symptom, as text. */
function figureText(row, symptom, side) {
  const parts = row.figures.filter((f) => f.symptom === symptom && f[side]);
  return parts.map((f) => (parts.length > 1 ? `${f.edge}: ${f[side].text}` : f[side].text)).join('; ') || (unknownBecause ? 'unknown' : 'none');
}

/** The kind of outage that users of a connector saw for longest, with its figures as text; null without one. */
function worstOf(row) {
  const sums = ['503', 'dead tunnel'].map((symptom) => {
    const figures = row.figures.filter((figure) => figure.symptom === symptom);
    const ms = (side) => figures.reduce((sum, figure) => sum + (figure[side]?.ms ?? 0), 0);
    const text = (side) => `${figures.some((figure) => figure[side]?.open) ? 'at least ' : ''}${duration(ms(side))}`;
    return { symptom, known: figures.length, worst: ms('recorded') || ms('replayed'), recorded: text('recorded'), replayed: text('replayed') };
  });
  const [first, second] = sums;
  const worst = second.worst > first.worst || !first.known ? second : first;
  return worst.known ? worst : null;
}
