// Marks: the entries of a story, each with the shape of its kind. Those too close to each other are one
// neutral badge with a count for each kind.

/** Marks closer than this are one. */
const NEAR = 17;
/** The most kinds with a shape of their own in a badge. */
const KINDS_MAX = 3;

const KIND_NAMES = {
  mirror: 'mirror', touch: 'touch', confirm: 'touch to confirm', nudge: 'nudge', delete: 'route deleted', began: 'problem began',
  ended: 'problem ended',
};

/** What an entry is counted as. */
function kindName(item) {
  if (item.kind === 'upstream') return item.online ? 'goes online' : 'goes offline';
  const name = KIND_NAMES[item.kind] ?? 'hop passed';
  return item.outcome === 'failed' ? `${name}, failed` : name;
}

const rankOf = (item) => (item.outcome === 'failed' ? 99 : RANKS.indexOf(item.kind));

/** Counts an entry in a group by its kind. */
function addKind(group, item) {
  const name = kindName(item);
  const kind = group.kinds.get(name);
  if (kind) kind.n += 1;
  else group.kinds.set(name, { name, item, n: 1 });
}

const kindWidth = (n) => 14 + (n > 1 ? String(n).length * 6 + 1 : 0);

/** The width of a group's badge, which begins a little before the group. */
function badgeWidth(group) {
  const widths = [...group.kinds.values()].map((kind) => kindWidth(kind.n)).sort((a, b) => b - a);
  const more = widths.length > KINDS_MAX ? 14 : 0;
  return widths.slice(0, KINDS_MAX).reduce((width, each) => width + each, 6) + more;
}

/** The story's entries in view; those too close to each other form one group. */
function groupMarks(row, scale) {
  const margin = (scale.view.to - scale.view.from) * 0.02;
  const first = lowerBound(row.story, scale.view.from - margin, (e) => e.at);
  const found = [];
  let group = null;
  for (let i = first; i < row.story.length && row.story[i].at <= scale.view.to + margin; i++) {
    const x = scale.x(row.story[i].at);
    const taken = group && (group.last > group.first ? Math.max(NEAR, badgeWidth(group)) : NEAR);
    if (group && x - group.x < taken) {
      group.last = i;
    } else {
      group = { first: i, last: i, x, kinds: new Map() };
      found.push(group);
    }
    addKind(group, row.story[i]);
  }
  for (const it of found) {
    it.items = row.story.slice(it.first, it.last + 1);
    it.counts = [...it.kinds.values()].sort((a, b) => rankOf(b.item) - rankOf(a.item));
  }
  return found;
}

/** `26 × touch, 1 × mirror`. */
const countsText = (counts) => counts.map((kind) => `${kind.n} × ${kind.name}`).join(', ');

/** The label of a mark, for screen readers. */
function markLabel(group) {
  const texts = group.items.slice(0, 4).map((e) => e.text).join('; ');
  const more = group.items.length > 4 ? `; and ${group.items.length - 4} more` : '';
  const counts = group.items.length > 1 ? `${countsText(group.counts)}: ` : '';
  return `${clock(group.items[0].at)}: ${counts}${texts}${more}`;
}

/** A neutral badge: the shape and the number of each kind. */
function badge(group) {
  const width = badgeWidth(group);
  const shapes = [svg('rect', { class: 'hit badge', x: -9, y: -10, width, height: 20, rx: 6 })];
  let x = 0;
  for (const { item, n } of group.counts.slice(0, KINDS_MAX)) {
    shapes.push(svg('g', { transform: `translate(${x} 0) scale(.8)` }, glyph(item)));
    if (n > 1) shapes.push(svg('text', { class: 'n', x: x + 7, y: 3.5, text: n }));
    x += kindWidth(n);
  }
  if (group.counts.length > KINDS_MAX) shapes.push(svg('text', { class: 'n', x: x - 4, y: 3.5, text: '…' }));
  return shapes;
}

function drawMark(group, y, selected) {
  const n = group.items.length;
  const chosen = selected !== null && group.items[0].at <= selected && group.items[n - 1].at >= selected;
  const shapes = n > 1 ? badge(group) : [svg('rect', { class: 'hit', x: -9, y: -10, width: 18, height: 20, rx: 5 }), ...glyph(group.items[0])];
  return svg('g', {
    class: chosen ? 'mark sel' : 'mark', role: 'button', tabindex: -1, 'aria-label': markLabel(group),
    'data-first': group.first, 'data-last': group.last, transform: `translate(${group.x.toFixed(1)} ${y})`,
  }, shapes);
}
