// Draws one row of the timeline. The work grows with the pixels in view, not with the log.

const FOLDED = 52;
/** What is known of the hops. */
const ALL = { from: whole.from, to: report.ended_ms };

const lanesIn = (row) => row.lanes.length + row.users.length;
const heightOf = (row) => (row.open ? HEAD + lanesIn(row) * LANE + 6 : FOLDED);

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

function drawTrack(track, row, scale, ticks, selected) {
  const height = heightOf(row) - 1;
  const out = ticks.map((tick) => svg('line', { x1: scale.x(tick), x2: scale.x(tick), y1: 0, y2: height, class: 'grid' }));
  const end = scale.x(report.to_ms);
  if (end > 0 && end < scale.width) out.push(svg('line', { x1: end, x2: end, y1: 0, y2: height, class: 'end' }));
  let marksAt = 17;
  if (row.open) {
    let y = HEAD + (LANE - BAND) / 2 - 2;
    for (const lane of row.lanes) {
      drawStates(out, lane, scale, y, BAND, ALL);
      drawProblems(out, lane, scale, y, BAND, ALL.to);
      y += LANE;
    }
    for (const lane of row.users) {
      drawUsers(out, lane, scale, y, BAND);
      y += LANE;
    }
  } else {
    marksAt = 12;
    const upstream = row.lanes.find((l) => l.hop === 'upstream') || row.lanes[0];
    if (upstream) drawStates(out, upstream, scale, 23, 6, ALL);
    row.lanes.forEach((lane) => drawProblems(out, lane, scale, 23, 6, ALL.to));
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
