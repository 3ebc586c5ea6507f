// Draws one row of the timeline. The work grows with the pixels in view, not with the log.

const HEAD = 34;
const LANE = 25;
const BAND = 15;
const FOLDED = 52;
/** Marks closer than this are one mark with a number. */
const NEAR = 17;

const lanesIn = (row) => row.lanes.length + row.users.length;
const heightOf = (row) => (row.open ? HEAD + lanesIn(row) * LANE + 6 : FOLDED);

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

/** The states of a hop as bands. Changes too close to tell apart become one busy band. */
function drawStates(out, lane, scale, y, height) {
  const end = report.ended_ms;
  const changes = lane.changes;
  const before = clip(scale, whole.from, changes.length ? changes[0].at : end, 0);
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
    const state = stateWord(changes[i].online);
    out.push(svg('rect', { ...span, width: Math.max(1.5, span.width), y, height, class: `s-${state}` }));
    if (i > 0 && changes[i - 1].online === changes[i].online) {
      out.push(svg('line', { x1: span.x, x2: span.x, y1: y, y2: y + height, class: 'edge-of' }));
    }
    if (height > 12) out.push(bandLabel(state, `t-${state}`, span, y + height - 4));
  }
  flush();
}

/** What users saw: a line, with a block for each outage. */
function drawUsers(out, lane, scale, y, height) {
  const line = clip(scale, whole.from, lane.end, 0);
  const middle = y + height / 2;
  if (line) out.push(svg('line', { x1: line.x, x2: line.x + line.width, y1: middle, y2: middle, class: 'base' }));
  let last = -9;
  for (const span of lane.spans) {
    if (span.until < scale.view.from || span.from > scale.view.to) continue;
    const box = clip(scale, span.from, span.until, 2.5);
    // Skip an outage that the previous one hides.
    if (!box || box.x + box.width <= last + 0.5) continue;
    last = box.x + box.width;
    const cls = symptomOf(span.kind) === '503' ? 'o-wrong' : 'o-dead';
    out.push(svg('rect', { ...box, y, height, rx: 1.5, class: cls }));
    const part = span.firstRecovered !== null && span.firstRecovered < span.until ? clip(scale, span.firstRecovered, span.until, 0) : null;
    if (part && part.width > 1) out.push(svg('rect', { ...part, y, height, class: `${cls} part` }));
    if (height > 12) {
      const solid = part && part.width > 1 ? { x: box.x, width: part.x - box.x } : box;
      out.push(bandLabel(`${symptomOf(span.kind)} ${duration(span.until - span.from)}${span.isOpen ? ' or more' : ''}`, 't-on', solid, y + height - 4)
        || bandLabel(symptomOf(span.kind), 't-on', solid, y + height - 4));
    }
  }
}

/** While a difference that routes nothing waits. */
function drawDeferrals(out, lane, scale, y, height) {
  for (const deferral of lane.deferrals) {
    const span = clip(scale, deferral.since_ms, deferral.ended_at_ms ?? report.ended_ms, 4);
    if (!span) continue;
    out.push(svg('rect', { ...span, y: y - 2, height: height + 4, rx: 3, class: 'deferral' }));
    const label = bandLabel('deferred', 't-deferral', span, y + height - 4);
    if (label) label.setAttribute('x', span.x + span.width - 52);
    out.push(label);
  }
}

function drawStalls(out, lane, scale, y, height) {
  for (const stall of lane.stalls) {
    const span = clip(scale, stall.since_ms, stall.ended_at_ms ?? report.ended_ms, 4);
    if (!span) continue;
    out.push(svg('rect', { ...span, y: y - 2, height: height + 4, rx: 3, class: 'stall' }));
    const label = bandLabel('stalled', 't-stall', span, y + height - 4);
    if (label) label.setAttribute('x', span.x + span.width - 46);
    out.push(label);
  }
}

/** The width of the number beside a mark. */
const tailOf = (n) => (n > 1 ? String(n).length * 6 + 3 : 0);

/** The story's entries in view; those too close to each other form one group. */
function groupMarks(row, scale) {
  const margin = (scale.view.to - scale.view.from) * 0.02;
  const first = lowerBound(row.story, scale.view.from - margin, (e) => e.at);
  const found = [];
  let group = null;
  for (let i = first; i < row.story.length && row.story[i].at <= scale.view.to + margin; i++) {
    const x = scale.x(row.story[i].at);
    if (group && x - group.x < NEAR + tailOf(i - group.first)) {
      group.last = i;
      group.end = x;
    } else {
      group = { first: i, last: i, x, end: x };
      found.push(group);
    }
  }
  for (const it of found) {
    it.items = row.story.slice(it.first, it.last + 1);
    const rank = (e) => (e.outcome === 'failed' ? 99 : RANKS.indexOf(e.kind));
    it.lead = it.items.reduce((best, e) => (rank(e) > rank(best) ? e : best));
  }
  return found;
}

/** The label of a mark, for screen readers. */
function markLabel(group) {
  const texts = group.items.slice(0, 4).map((e) => e.text).join('; ');
  const more = group.items.length > 4 ? `; and ${group.items.length - 4} more` : '';
  return `${clock(group.items[0].at)}: ${texts}${more}`;
}

function drawMark(group, y, selected) {
  const n = group.items.length;
  const tail = tailOf(n);
  const chosen = selected !== null && group.items[0].at <= selected && group.items[n - 1].at >= selected;
  return svg('g', {
    class: chosen ? 'mark sel' : 'mark', role: 'button', tabindex: -1, 'aria-label': markLabel(group),
    'data-first': group.first, 'data-last': group.last, transform: `translate(${group.x.toFixed(1)} ${y})`,
  }, [
    svg('rect', { class: 'hit', x: -9, y: -10, width: 18 + tail, height: 20, rx: 5 }),
    ...glyph(group.lead),
    n > 1 && svg('text', { class: 'n', x: 8, y: 3.5, text: n }),
  ]);
}

function drawTrack(track, row, scale, ticks, selected) {
  const height = heightOf(row) - 1;
  const out = ticks.map((tick) => svg('line', { x1: scale.x(tick), x2: scale.x(tick), y1: 0, y2: height, class: 'grid' }));
  if (report.ended_ms > report.to_ms) {
    const x = scale.x(report.to_ms);
    if (x > 0 && x < scale.width) out.push(svg('line', { x1: x, x2: x, y1: 0, y2: height, class: 'end' }));
  }
  let marksAt = 17;
  if (row.open) {
    let y = HEAD + (LANE - BAND) / 2 - 2;
    for (const lane of row.lanes) {
      drawStates(out, lane, scale, y, BAND);
      drawDeferrals(out, lane, scale, y, BAND);
      drawStalls(out, lane, scale, y, BAND);
      y += LANE;
    }
    for (const lane of row.users) {
      drawUsers(out, lane, scale, y, BAND);
      y += LANE;
    }
  } else {
    marksAt = 12;
    const upstream = row.lanes.find((l) => l.hop === 'upstream') || row.lanes[0];
    if (upstream) drawStates(out, upstream, scale, 23, 6);
    row.lanes.forEach((lane) => drawStalls(out, lane, scale, 23, 6));
    const each = Math.min(7, 19 / Math.max(1, row.users.length) - 2);
    row.users.forEach((lane, i) => drawUsers(out, lane, scale, 31 + i * (each + 2), each));
  }
  if (selected !== null) {
    const x = scale.x(selected);
    if (x >= 0 && x <= scale.width) out.push(svg('line', { x1: x, x2: x, y1: 0, y2: height, class: 'cursor' }));
  }
  for (const group of groupMarks(row, scale)) out.push(drawMark(group, marksAt, selected));
  track.replaceChildren(...out.filter(Boolean));
}
