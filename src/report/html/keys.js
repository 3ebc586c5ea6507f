// The keyboard (Tab stops once, arrow keys move within) and the tooltip.

const tip = byId('tip');

const currentFocus = () => (document.activeElement?.closest?.('.row') ? { ...state.at } : null);

function hideTip() {
  tip.hidden = true;
}

/** Shows entries in the tooltip beside a box. */
function showTip(items, box, counts = '') {
  if (!items.length) return hideTip();
  const lines = items.slice(0, 5).map((it) => html('p', {}, [
    html('span', { class: 'when', text: `${clock(it.at)}  ${offset(it.at)}` }), html('br'), html('span', { text: brief(it.text) }),
  ]));
  if (counts) lines.unshift(html('p', { class: 'when', text: counts }));
  if (items.length > 5) lines.push(html('p', { class: 'when', text: `… ${items.length - 5} more: zoom in or select` }));
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const size = tip.getBoundingClientRect();
  const below = box.bottom + 10 + size.height < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left - 12, innerWidth - size.width - 8))}px`;
  tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - size.height - 8)}px`;
}

const entriesOf = (mark, row) => row.story.slice(Number(mark.dataset.first), Number(mark.dataset.last) + 1);

/** Shows the entries of a mark beside it. */
function showMark(mark, row) {
  const group = { kinds: new Map() };
  const items = entriesOf(mark, row);
  items.forEach((item) => addKind(group, item));
  const counts = items.length > 1 ? countsText([...group.kinds.values()].sort((a, b) => rankOf(b.item) - rankOf(a.item))) : '';
  showTip(items, mark.getBoundingClientRect(), counts);
}

/** The problems or outages at a point within the lanes. */
function atPoint(event, row) {
  if (!row.open) return [];
  const index = Math.floor((event.offsetY - HEAD) / LANE);
  const at = momentAt(event);
  const near = ((state.view.to - state.view.from) / width) * 3;
  const inside = (from, until) => at >= from - near && at <= until + near;
  const lane = row.lanes[index];
  const users = row.users[index - row.lanes.length];
  if (lane) {
    const problems = lane.problems.filter((p) => inside(p.since_ms, p.ended_ms ?? report.ended_ms));
    return problems.map((p) => ({ at: p.since_ms, text: problemText(p) }));
  }
  return users ? users.spans.filter((s) => inside(s.from, s.until)).map((s) => ({ at: s.from, text: outageText(s) })) : [];
}

function hover(event, row) {
  const mark = event.target.closest?.('.mark');
  if (mark) return showMark(mark, row);
  const found = event.buttons ? [] : atPoint(event, row);
  const { clientX: left, clientY: y } = event;
  return showTip(found, { left, top: y - 4, bottom: y + 8 });
}

function focused(event, row) {
  const mark = event.target.closest('.mark');
  state.at = { row, entry: mark ? Number(mark.dataset.first) : -1 };
  if (mark && mark.matches(':focus-visible')) showMark(mark, row);
  else if (!mark) hideTip();
}

function markOf(made, entry) {
  return [...made.track.querySelectorAll('.mark')]
    .find((mark) => Number(mark.dataset.first) <= entry && Number(mark.dataset.last) >= entry);
}

/** Restores the focus after elements were replaced. */
function refocus(focus) {
  const made = state.elements.get(focus.row);
  if (!made) return;
  const target = (focus.entry >= 0 && markOf(made, focus.entry)) || made.name;
  if (document.activeElement !== target) target.focus({ preventScroll: true });
}

/** Scrolls a row into view. */
function reveal(row) {
  const top = state.offsets[state.shown.indexOf(row)];
  if (top === undefined) return;
  const bottom = top + Math.min(heightOf(row), scroller.clientHeight);
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = bottom - scroller.clientHeight;
}

/**
 * Moves the focus to a row's name, or to an entry of its story and selects it: the first entry of
 * its mark, or with `exact` this one.
 */
function goTo(row, entry, exact = false) {
  const item = row.story[entry];
  let first = entry;
  if (item) {
    const { from, to } = state.view;
    if (item.at < from || item.at > to) showRange(item.at - (to - from) / 2, item.at + (to - from) / 2);
    const group = groupMarks(row, scaleOf(state.view, width)).find((it) => it.first <= entry && it.last >= entry);
    if (group && !exact) first = group.first;
    select(row, row.story[first].at);
  }
  state.at = { row, entry: first };
  state.focusBefore = { row, entry: first };
  reveal(row);
  draw();
}

function alongRow(step) {
  const { row, entry } = state.at;
  if (!row) return;
  if (entry < 0) {
    if (step > 0 && row.story.length) {
      const first = lowerBound(row.story, state.view.from, (e) => e.at);
      goTo(row, Math.min(first, row.story.length - 1));
    }
    return;
  }
  const made = state.elements.get(row);
  const mark = made && markOf(made, entry);
  const next = step > 0 ? Number(mark?.dataset.last ?? entry) + 1 : Number(mark?.dataset.first ?? entry) - 1;
  if (next < row.story.length) goTo(row, Math.max(-1, next));
}

function acrossRows(step) {
  const index = state.shown.indexOf(state.at.row);
  const row = state.shown[Math.min(Math.max(index + step, 0), state.shown.length - 1)];
  if (row) goTo(row, -1);
}

function clearSelection() {
  hideTip();
  if (state.selected) select(null);
}

const KEYS = {
  ArrowDown: () => acrossRows(1),
  ArrowUp: () => acrossRows(-1),
  ArrowRight: (event) => (event.shiftKey ? pan(0.2) : alongRow(1)),
  ArrowLeft: (event) => (event.shiftKey ? pan(-0.2) : alongRow(-1)),
  PageDown: () => acrossRows(8),
  PageUp: () => acrossRows(-8),
  Home: () => state.at.row && goTo(state.at.row, state.at.row.story.length ? 0 : -1),
  End: () => state.at.row && goTo(state.at.row, state.at.row.story.length - 1),
  '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), 0: fit,
};

function addKeyHandlers() {
  scroller.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Enter' || event.key === ' ') {
      // On a name, the button's own click expands the row.
      if (!event.target.closest('.mark')) return;
      toggle(state.at.row);
    } else if (KEYS[event.key]) KEYS[event.key](event);
    else return;
    event.preventDefault();
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') clearSelection();
    if (event.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      byId('filter').focus();
    }
  });
}
