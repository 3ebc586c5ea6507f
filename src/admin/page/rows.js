// The rows: only those in view have elements. A row shows its last minutes, in the look of the picture.

const FOLDED = 52;
const state = {
  /** In order, as far as the filter lets them through. */
  shown: [],
  offsets: [],
  elements: new Map(),
  states: new Set(),
  spanMs: 2 * 60e3,
  /** The id of the row that has or had the focus, and of the row in the panel. */
  at: null,
  selected: null,
  isStale: true,
};

const scroller = byId('scroller');
const rowsElement = byId('rows');
const axis = svg('svg', { height: 24, 'aria-hidden': 'true' });
byId('axis').append(axis);
let width = 600;
let frame = 0;

function redraw() {
  frame ||= requestAnimationFrame(draw);
}

const heightOf = (row) => (row.open ? HEAD + row.lanes.length * LANE + 6 : FOLDED);
const toneOf = (row) => TONES_OF[row.state] ?? '';

/** Filters, orders and measures. */
function arrange() {
  const wanted = byId('filter').value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...fleet.rows.values()];
  state.shown = all.filter((row) => (!state.states.size || state.states.has(row.state)) && wanted.every((word) => row.search.includes(word)));
  state.shown.sort(byId('order').value === 'worst' ? byWorst : byName);
  byId('shown').textContent = state.shown.length === all.length ? count(all.length, 'connector') : `${state.shown.length.toLocaleString('en')} of ${count(all.length, 'connector')}`;
  byId('nothing').hidden = state.shown.length > 0;
  byId('nothing').textContent = !fleet.head ? 'Waiting for the first answer.' : all.length ? 'No connector matches the filter.' : 'This instance knows no connector.';
  if (!state.shown.some((row) => row.id === state.at)) state.at = state.shown[0]?.id ?? null;
  let top = 0;
  state.offsets = state.shown.map((row) => {
    const at = top;
    top += heightOf(row);
    return at;
  });
  rowsElement.style.height = `${top}px`;
  redraw();
}

function makeRow(id) {
  const name = html('button', { type: 'button', class: 'name' });
  name.addEventListener('click', () => toggle(id));
  name.addEventListener('focus', () => { state.at = id; });
  const track = svg('svg', { class: 'track', role: 'img' });
  const gutter = html('div', { class: 'gutter' }, [name]);
  const element = html('div', { class: 'row', role: 'listitem' }, [gutter, track]);
  track.addEventListener('click', () => toggle(id));
  return { element, name, gutter, track };
}

/** An age in whole seconds: it is drawn again every second. */
const ageText = (ms) => (ms < 60e3 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(Math.floor(ms / 1000) * 1000));

function subtitle(row, now) {
  const liveness = row.online === null ? '' : stateWord(row.online);
  const age = row.sinceMs ? ` for ${ageText(now - row.sinceMs)}` : '';
  const is = row.state === 'ok' ? `${liveness || 'ok'}${age}` : [`${row.state}${age}`, liveness].filter(Boolean).join(' · ');
  return [is, row.gateways].filter(Boolean).join(' · ');
}

function drawGutter(made, row, now) {
  made.name.textContent = row.name;
  made.name.title = row.name;
  made.name.setAttribute('aria-expanded', row.open);
  const lines = row.open ? row.lanes.map((l) => `${HOP_TITLES[l.hop]} · ${l.cluster}`) : [subtitle(row, now)];
  while (made.gutter.children.length > lines.length + 1) made.gutter.lastChild.remove();
  lines.forEach((text, i) => {
    let line = made.gutter.children[i + 1];
    if (!line) made.gutter.append(line = html('span', { class: 'sub' }));
    line.textContent = text;
    line.title = text;
    line.className = row.open ? 'sub' : `sub ${toneOf(row)}`;
    line.style.top = `${row.open ? HEAD + i * LANE + 2 : 25}px`;
  });
}

/** Where a hop is. */
const placeOf = (hop) => `${hop.hop} (${hop.cluster})`;

function whyText({ worst }) {
  if (!worst) return '';
  return [placeOf(worst), worst.cause && words(worst.cause), worst.message].filter(Boolean).join(': ');
}

function drawTrack(made, row, scale, ticks, range) {
  const height = heightOf(row) - 1;
  const out = ticks.map((tick) => svg('line', { x1: scale.x(tick), x2: scale.x(tick), y1: 0, y2: height, class: 'grid' }));
  const lane = (it, y, tall) => {
    drawStates(out, it, scale, y, tall, range);
    drawProblems(out, it, scale, y, tall, range.to);
  };
  if (row.open) row.lanes.forEach((it, i) => lane(it, HEAD + (LANE - BAND) / 2 - 2 + i * LANE, BAND));
  else {
    const edge = row.lanes.filter((it) => it.hop === 'announced' || it.hop === 'carried').at(-1);
    [row.lanes.find((it) => it.hop === 'upstream'), edge].forEach((it, i) => it && drawStates(out, it, scale, 25 + i * 12, 7, range));
    row.lanes.forEach((it) => drawProblems(out, it, scale, 25, 19, range.to));
  }
  const why = whyText(row);
  if (why) out.push(svg('text', { x: 6, y: 15, class: `t-why ${toneOf(row)}`, text: brief(why, Math.max(20, Math.floor(width / 6.2))) }));
  if (range.to < scale.view.to) out.push(svg('line', { x1: scale.x(range.to), x2: scale.x(range.to), y1: 0, y2: height, class: 'end' }));
  fill(made.track, { width, height, 'aria-label': `${row.name}: ${subtitle(row, range.to)}${why ? `; ${why}` : ''}` });
  made.track.replaceChildren(...out.filter(Boolean));
}

function draw() {
  frame = 0;
  const now = state.isStale ? serverNow() : fleet.at;
  const view = { from: now - state.spanMs, to: now };
  const range = { from: view.from, to: fleet.at };
  const scale = scaleOf(view, width);
  const { ticks, step } = ticksOf(view, width);
  drawAxis(scale, ticks, step);
  const focused = document.activeElement?.closest?.('.row') ? state.at : null;
  const top = scroller.scrollTop - 60;
  const bottom = scroller.scrollTop + scroller.clientHeight + 60;
  const wanted = new Set();
  let previous = null;
  for (let i = Math.max(0, lowerBound(state.offsets, top, (y) => y) - 1); i < state.shown.length && state.offsets[i] <= bottom; i++) {
    const row = state.shown[i];
    wanted.add(row.id);
    if (!state.elements.has(row.id)) state.elements.set(row.id, makeRow(row.id));
    const made = state.elements.get(row.id);
    // Keep the elements in the order of the rows for screen readers.
    if (made.element !== (previous ? previous.nextSibling : rowsElement.firstChild)) {
      if (previous) previous.after(made.element);
      else rowsElement.prepend(made.element);
    }
    previous = made.element;
    made.element.style.top = `${state.offsets[i]}px`;
    made.element.style.height = `${heightOf(row)}px`;
    made.element.classList.toggle('on', state.selected === row.id);
    made.element.setAttribute('aria-setsize', state.shown.length);
    made.element.setAttribute('aria-posinset', i + 1);
    made.name.tabIndex = state.at === row.id ? 0 : -1;
    drawGutter(made, row, range.to);
    drawTrack(made, row, scale, ticks, range);
  }
  for (const [id, made] of state.elements) {
    // Removing the focused row would lose the focus, unless its connector is gone.
    if (wanted.has(id) || (focused === id && fleet.rows.has(id))) continue;
    made.element.remove();
    state.elements.delete(id);
  }
  // Tab reaches the rows, wherever they are scrolled to.
  if (![...state.elements.values()].some((made) => made.name.tabIndex === 0)) {
    const first = rowsElement.querySelector('.name');
    if (first) first.tabIndex = 0;
  }
  const name = state.elements.get(focused)?.name;
  if (name && document.activeElement !== name) name.focus({ preventScroll: true });
}

function drawAxis(scale, ticks, step) {
  const label = (ms) => clock(ms).slice(0, step < 6e4 ? 8 : 5);
  axis.setAttribute('width', width);
  axis.replaceChildren(...ticks.flatMap((tick) => [
    svg('line', { x1: scale.x(tick), x2: scale.x(tick), y1: 17, y2: 24, class: 'grid' }),
    scale.x(tick) < width - 56 && svg('text', { x: scale.x(tick) + 4, y: 15, text: label(tick) }),
  ]).filter(Boolean));
  byId('axis-day').textContent = fleet.at ? `${new Date(scale.view.to).toISOString().slice(0, 10)}, UTC` : '';
}

function resize() {
  const room = axis.parentElement.clientWidth - axis.previousElementSibling.offsetWidth - (scroller.offsetWidth - scroller.clientWidth);
  width = Math.max(120, room);
  redraw();
}

/** Opens or closes a row; an open one is in the panel. */
function toggle(id) {
  const row = fleet.rows.get(id);
  if (!row) return;
  row.open = !row.open;
  state.at = id;
  arrange();
  select(row.open ? id : state.selected === id ? null : state.selected);
}

/** Moves the focus to a row, and scrolls it into view. */
function goTo(index) {
  const row = state.shown[Math.min(Math.max(index, 0), state.shown.length - 1)];
  if (!row) return;
  state.at = row.id;
  const top = state.offsets[state.shown.indexOf(row)];
  const bottom = top + Math.min(heightOf(row), scroller.clientHeight);
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = bottom - scroller.clientHeight;
  draw();
  state.elements.get(row.id)?.name.focus({ preventScroll: true });
  draw();
}

const KEYS = {
  ArrowDown: (i) => i + 1, ArrowUp: (i) => i - 1, PageDown: (i) => i + 8, PageUp: (i) => i - 8, Home: () => 0, End: () => Infinity,
};

function addKeyHandlers() {
  scroller.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    goTo(KEYS[event.key](state.shown.findIndex((row) => row.id === state.at)));
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') select(null);
    if (event.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      byId('filter').focus();
    }
  });
}

function addControlHandlers() {
  let typing = 0;
  byId('filter').addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(arrange, 60); });
  byId('order').addEventListener('change', arrange);
  byId('span').addEventListener('change', () => { state.spanMs = Number(byId('span').value) * 60e3; redraw(); });
  scroller.addEventListener('scroll', redraw, { passive: true });
  new ResizeObserver(resize).observe(scroller);
}

function legend() {
  const box = (children) => svg('svg', { width: 26, height: 16, 'aria-hidden': 'true' }, children);
  const band = (cls) => box([svg('rect', { x: 1, y: 2, width: 24, height: 12, rx: 2, class: cls })]);
  const items = [[band('s-online'), 'online'], [band('s-offline'), 'offline'], [band('s-unknown'), 'not known'], [band('problem'), 'stuck'],
    [band('s-busy'), 'changes too quick to tell apart']];
  byId('legend').replaceChildren(...items.map(([picture, title]) => html('li', {}, [picture, title])),
    html('li', { text: 'A folded row: upstream above, the edge below.' }));
}
