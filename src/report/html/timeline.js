// The timeline: the view, the rows that exist as elements, the axis, the pointer.

const LEAST_MS = 20;
/** For A4 landscape, beside the names; scripts can't query the paper width. */
const PAPER_WIDTH = 740;
const PAPER_ROWS = 500;

const state = {
  view: { ...whole },
  shown: [],
  offsets: [],
  /** The row and the moment in the panel. */
  selected: null,
  /** The row, and the entry of its story (-1: its name), with the keyboard focus. */
  at: { row: null, entry: -1 },
  elements: new Map(),
  /** Where the focus was before its element was replaced. */
  focusBefore: null,
  /** When printing, rows out of sight are drawn too, as wide as the paper. */
  onPaper: false,
};

const scroller = byId('scroller');
const rowsElement = byId('rows');
const overview = svg('svg', { height: 26, role: 'img', 'aria-label': 'Outages over the whole log; the frame marks the view' });
const axis = svg('svg', { height: 38, 'aria-hidden': 'true' });
const inView = svg('rect', { rx: 3, class: 'window' });
byId('overview').append(overview);
byId('axis').append(axis);
let width = 600;
let frame = 0;

/** Asks for a redraw before the next frame. */
function redraw() {
  frame ||= requestAnimationFrame(draw);
}

const selectedIn = (row) => (state.selected && state.selected.row === row ? state.selected.at : null);

/** The label of the moment at which the recording ends. */
function endLabel(scale) {
  const x = scale.x(report.to_ms);
  if (x < 0 || x > scale.width) return [];
  const isRight = x > scale.width - 130;
  return [
    svg('line', { x1: x, x2: x, y1: 2, y2: 38, class: 'end' }),
    svg('text', { x: isRight ? x - 5 : x + 5, y: 12, class: 'end-label', 'text-anchor': isRight ? 'end' : 'start', text: 'end of the recording' }),
  ];
}

function drawAxis(scale, ticks, step) {
  const label = (ms) => clock(ms).slice(0, step < 1000 ? 12 : step < 6e4 ? 8 : 5);
  axis.setAttribute('width', width);
  axis.replaceChildren(...ticks.flatMap((tick) => [
    svg('line', { x1: scale.x(tick), x2: scale.x(tick), y1: 31, y2: 38, class: 'grid' }),
    svg('text', { x: scale.x(tick) + 4, y: 29, text: label(tick) }),
  ]), ...endLabel(scale));
  byId('axis-day').textContent = `${new Date(state.view.from).toISOString().slice(0, 10)}, UTC`;
}

/** The outages of the whole log. They change only with the filter and the width. */
function drawOverview() {
  const scale = scaleOf(whole, width);
  const out = [];
  const lanes = isVerify ? ['recorded'] : ['recorded', 'replayed'];
  const wanted = new Set(state.shown.map((row) => row.hubName));
  lanes.forEach((side, i) => {
    let last = -9;
    const end = side === 'recorded' ? report.to_ms : report.ended_ms;
    for (const o of report.outages[side]) {
      if (!wanted.has(hubNameOf(o))) continue;
      const box = clip(scale, o.from_ms, o.until_ms ?? end, 1.5);
      if (!box || box.x + box.width <= last) continue;
      last = box.x + box.width;
      out.push(svg('rect', { ...box, y: 4 + i * 10, height: 8, class: symptomOf(o.kind) === '503' ? 'o-wrong' : 'o-dead' }));
    }
  });
  overview.setAttribute('width', width);
  overview.replaceChildren(...out, inView);
}

function drawInView() {
  const scale = scaleOf(whole, width);
  const x = Math.max(0.5, scale.x(state.view.from));
  const right = Math.min(width - 0.5, scale.x(state.view.to));
  fill(inView, { x, y: 0.5, width: Math.max(3, right - x), height: 25 });
}

function resize() {
  const room = axis.parentElement.clientWidth - axis.previousElementSibling.offsetWidth - (scroller.offsetWidth - scroller.clientWidth);
  width = state.onPaper ? PAPER_WIDTH : Math.max(120, room);
  drawOverview();
  redraw();
}

/** A row's element: its name and lanes on the left, its track on the right. */
function makeRow(row) {
  const name = button(row.label, () => toggle(row), { class: 'name', tabindex: -1, title: row.fullName });
  const track = svg('svg', { class: 'track', role: 'group', 'aria-label': `${row.label} over time` });
  const gutter = html('div', { class: 'gutter' });
  const element = html('div', { class: 'row', role: 'listitem' }, [gutter, track]);
  const made = { element, name, track, gutter, row };
  track.addEventListener('pointermove', (event) => hover(event, row));
  track.addEventListener('pointerleave', hideTip);
  element.addEventListener('focusin', (event) => focused(event, row));
  drawGutter(made);
  return made;
}

function drawGutter(made) {
  const { row, gutter, name } = made;
  name.setAttribute('aria-expanded', row.open);
  const lines = row.open
    ? [...row.lanes.map((l) => `${HOP_TITLES[l.hop]} · ${l.cluster}`), ...row.users.map((l) => `${l.title} · ${l.edge}`)]
    : [subtitle(row)];
  gutter.replaceChildren(name, ...lines.map((text, i) => {
    const line = html('span', { class: 'sub', text, title: text });
    line.style.top = `${row.open ? HEAD + i * LANE + 2 : 25}px`;
    return line;
  }));
}

function subtitle(row) {
  if (row.isRest) return count(row.story.length, 'entry', 'entries');
  if (!row.story.length) return 'nothing to do, no writes';
  const stuck = row.stuck ? 'STUCK · ' : '';
  const worst = worstOf(row);
  if (worst) return `${stuck}${worst.symptom} ${worst.recorded}${isVerify ? '' : ` → ${worst.replayed}`}`;
  return `${stuck}${unknownBecause ? count(row.story.length, 'entry', 'entries') : 'users saw no outage'}`;
}

/** Orders, filters and measures the rows. */
function arrange() {
  const wanted = byId('filter').value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  state.shown = rows.filter((row) => wanted.every((word) => row.search.includes(word)));
  if (byId('order').value === 'worst') state.shown.sort(byWorst);
  const connectors = rows.filter((row) => !row.isRest).length;
  const found = state.shown.filter((row) => !row.isRest).length;
  byId('shown').textContent = found === connectors ? count(connectors, 'connector') : `${found} of ${count(connectors, 'connector')}`;
  byId('nothing').hidden = state.shown.length > 0;
  byId('nothing').textContent = rows.length ? 'No name, namespace or cluster matches the filter.' : 'This log has no connectors.';
  if (!state.shown.includes(state.at.row)) state.at = { row: state.shown[0] ?? null, entry: -1 };
  measure();
  drawOverview();
}

function measure() {
  let top = 0;
  state.offsets = state.shown.map((row) => {
    const at = top;
    top += heightOf(row);
    return at;
  });
  rowsElement.style.height = `${top}px`;
  state.focusBefore ??= currentFocus();
  state.elements.forEach((made) => made.element.remove());
  state.elements.clear();
  byId('expand').textContent = state.shown.some((row) => row.open) ? 'Collapse all' : 'Expand all';
  redraw();
}

function draw() {
  frame = 0;
  const scale = scaleOf(state.view, width);
  const { ticks, step } = ticksOf(state.view, width);
  drawAxis(scale, ticks, step);
  drawInView();
  const focus = state.focusBefore ?? currentFocus();
  state.focusBefore = null;
  const top = state.onPaper ? 0 : scroller.scrollTop - 60;
  const bottom = scroller.scrollTop + scroller.clientHeight + 60;
  const wanted = new Set();
  let previous = null;
  for (let i = Math.max(0, lowerBound(state.offsets, top, (y) => y) - 1); i < state.shown.length; i++) {
    if (state.onPaper ? i >= PAPER_ROWS : state.offsets[i] > bottom) break;
    const row = state.shown[i];
    wanted.add(row);
    let made = state.elements.get(row);
    if (!made) {
      made = makeRow(row);
      state.elements.set(row, made);
    }
    // Keep the elements in the order of the rows for screen readers.
    if (made.element !== (previous ? previous.nextSibling : rowsElement.firstChild)) {
      if (previous) previous.after(made.element);
      else rowsElement.prepend(made.element);
    }
    previous = made.element;
    made.element.style.top = `${state.offsets[i]}px`;
    made.element.style.height = `${heightOf(row)}px`;
    made.element.classList.toggle('on', state.selected?.row === row);
    made.element.setAttribute('aria-setsize', state.shown.length);
    made.element.setAttribute('aria-posinset', i + 1);
    made.name.tabIndex = state.at.row === row ? 0 : -1;
    fill(made.track, { width, height: heightOf(row) - 1 });
    drawTrack(made.track, row, scale, ticks, selectedIn(row));
  }
  for (const [row, made] of state.elements) {
    // Removing the focused row would lose the focus.
    if (wanted.has(row) || focus?.row === row) continue;
    made.element.remove();
    state.elements.delete(row);
  }
  if (focus) refocus(focus);
}

/** Shows a time range, limited to the log and to the smallest useful range. */
function showRange(from, to) {
  const most = whole.to - whole.from;
  const room = most * 0.02;
  const span = Math.min(Math.max(to - from, Math.min(LEAST_MS, most)), most + 2 * room);
  const start = Math.min(Math.max(from + (to - from - span) / 2, whole.from - room), whole.to + room - span);
  state.view = { from: start, to: start + span };
  hideTip();
  redraw();
}

/** Shows the recording and a little of what follows it; the overview has the rest. */
function showRecording() {
  const recorded = Math.max(report.to_ms - report.from_ms, LEAST_MS);
  showRange(report.from_ms - recorded * 0.02, Math.min(whole.to, report.to_ms + recorded * 0.2));
}

const fit = () => showRange(whole.from - (whole.to - whole.from) * 0.01, whole.to + (whole.to - whole.from) * 0.01);

function zoom(factor, around) {
  const { from, to } = state.view;
  const centre = around ?? (state.selected && state.selected.at >= from && state.selected.at <= to ? state.selected.at : (from + to) / 2);
  showRange(centre - (centre - from) * factor, centre + (to - centre) * factor);
}

function pan(share) {
  const by = (state.view.to - state.view.from) * share;
  showRange(state.view.from + by, state.view.to + by);
}

function toggle(row, open = !row.open) {
  row.open = open;
  measure();
}

const momentAt = (event, view = state.view) => scaleOf(view, width).at(event.clientX - axis.getBoundingClientRect().left);

/** Dragging moves the view; a click without dragging selects. */
function addPointerHandlers() {
  let drag = null;
  scroller.addEventListener('pointerdown', (event) => {
    const element = event.target.closest?.('.row');
    if (event.button !== 0 || !event.target.closest?.('.track')) return;
    drag = { x: event.clientX, view: { ...state.view }, element, moved: false, mark: event.target.closest('.mark') };
  });
  addEventListener('pointermove', (event) => {
    if (!drag) return;
    drag.moved ||= Math.abs(event.clientX - drag.x) > 4;
    if (!drag.moved) return;
    const by = ((drag.x - event.clientX) / width) * (drag.view.to - drag.view.from);
    showRange(drag.view.from + by, drag.view.to + by);
  });
  addEventListener('pointerup', (event) => {
    const done = drag;
    drag = null;
    if (!done || done.moved) return;
    const made = [...state.elements.values()].find((it) => it.element === done.element);
    if (!made) return;
    if (done.mark) goTo(made.row, Number(done.mark.dataset.first));
    else select(made.row, momentAt(event));
  });
  addEventListener('pointercancel', () => { drag = null; });
  scroller.addEventListener('wheel', (event) => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.sign(event.deltaY) * 0.25), momentAt(event));
    else if (Math.abs(sideways) > (event.shiftKey ? 0 : Math.abs(event.deltaY))) pan(sideways / width);
    else return;
    event.preventDefault();
  }, { passive: false });
  scroller.addEventListener('scroll', redraw, { passive: true });
  scroller.addEventListener('dblclick', (event) => event.target.closest('.track') && zoom(0.4, momentAt(event)));
  overview.addEventListener('pointerdown', (event) => {
    const half = (state.view.to - state.view.from) / 2;
    const centre = momentAt(event, whole);
    showRange(centre - half, centre + half);
  });
}
