// Bands of states over time. The work grows with the pixels in view, not with the history.

/** The head of an expanded row, one lane in it, and the band in a lane. */
const HEAD = 34;
const LANE = 25;
const BAND = 15;
const NICE_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 432e5, 864e5];

/** Converts times to pixels and back. */
function scaleOf(view, width) {
  const perMs = width / (view.to - view.from);
  return { x: (ms) => (ms - view.from) * perMs, at: (x) => Math.round(view.from + x / perMs), width, view };
}

/** A time span in pixels, clipped to the view; null if it is outside. */
function clip(scale, from, to, least) {
  const x1 = scale.x(from);
  const x2 = Math.max(scale.x(to), x1 + least);
  if (x2 < 0 || x1 > scale.width) return null;
  const left = Math.max(x1, -2);
  return { x: left, width: Math.min(x2, scale.width + 2) - left };
}

/** A label within a band, if there is room. */
function bandLabel(text, cls, span, y) {
  if (span.width < text.length * 6.4 + 12) return null;
  return svg('text', { x: Math.max(span.x, 0) + 6, y, class: cls, text });
}

/** The states of a hop within `range` as bands. Changes too close to tell apart become one busy band. */
function drawStates(out, lane, scale, y, height, range) {
  const end = range.to;
  const changes = lane.changes;
  const before = clip(scale, range.from, changes.length ? changes[0].at : end, 0);
  if (before) out.push(svg('rect', { ...before, y: y + 2, height: height - 4, class: 's-unknown' }));
  let i = Math.max(0, lowerBound(changes, scale.view.from, (c) => c.at) - 1);
  let busy = null;
  const flush = () => {
    if (busy) out.push(svg('rect', { x: busy.x, width: Math.max(2, busy.end - busy.x), y, height, class: 's-busy' }));
    busy = null;
  };
  for (; i < changes.length && changes[i].at <= scale.view.to; i++) {
    const until = i + 1 < changes.length ? changes[i + 1].at : end;
    const span = clip(scale, changes[i].at, until, 0);
    if (!span) continue;
    if (span.width < 1.5 && i + 1 < changes.length) {
      busy = { x: busy ? busy.x : span.x, end: span.x + span.width };
      continue;
    }
    flush();
    if (changes[i].online === null) {
      out.push(svg('rect', { ...span, y: y + 2, height: height - 4, class: 's-unknown' }));
      continue;
    }
    const state = stateWord(changes[i].online);
    out.push(svg('rect', { ...span, width: Math.max(1.5, span.width), y, height, class: `s-${state}` }));
    if (i > 0 && changes[i - 1].online === changes[i].online) {
      out.push(svg('line', { x1: span.x, x2: span.x, y1: y, y2: y + height, class: 'edge-of' }));
    }
    if (height > 12) out.push(bandLabel(state, `t-${state}`, span, y + height - 4));
  }
  flush();
}

/** What delays a hop, around its band. */
function drawProblems(out, lane, scale, y, height, end) {
  for (const problem of lane.problems) {
    const span = clip(scale, problem.since_ms, problem.ended_ms ?? end, 4);
    if (!span) continue;
    out.push(svg('rect', { ...span, y: y - 2, height: height + 4, rx: 3, class: `problem ${problem.severity}` }));
    const name = words(problem.cause);
    const label = bandLabel(name, `t-problem ${problem.severity}`, span, y + height - 4);
    if (label) label.setAttribute('x', span.x + span.width - name.length * 6.4 - 6);
    out.push(label);
  }
}

function ticksOf(view, width) {
  const idealStep = (view.to - view.from) / Math.max(2, width / 110);
  const step = NICE_MS.find((ms) => ms >= idealStep) || Math.ceil(idealStep / 864e5) * 864e5;
  const ticks = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) ticks.push(at);
  return { ticks, step };
}
