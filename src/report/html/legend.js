// The legend: each shape that occurs on this page.

/** Several entries in one place. */
const crowd = () => {
  const counts = [{ item: { kind: 'mirror', actions: [], outcome: 'applied' }, n: 1 }, { item: { kind: 'touch', actions: [], outcome: 'applied' }, n: 26 }];
  const group = { kinds: new Map(counts.map((kind, i) => [i, kind])), counts };
  return svg('svg', { width: 60, height: 22, 'aria-hidden': 'true' }, [svg('g', { class: 'mark', transform: 'translate(11 11)' }, badge(group))]);
};

function legend() {
  const small = (children, width = 26) => svg('svg', { width, height: 16, 'aria-hidden': 'true' }, children);
  const band = (cls, extra = {}) => small([svg('rect', { x: 1, y: 2, width: 24, height: 12, rx: 2, class: cls, ...extra })]);
  const mark = (item) => small([svg('g', { class: 'mark', transform: 'translate(9 8)' }, glyph({ actions: [], outcome: 'applied', ...item }))], 18);
  const touch = (outcome) => ({ kind: 'touch', actions: [0], outcome });
  const items = [
    [band('s-online'), 'online'], [band('s-offline'), 'offline'], [band('s-unknown'), 'not known yet'],
    [band('o-wrong'), '503: connector up, route offline'], [band('o-wrong part'), '… some gateways recovered'],
    [band('o-dead'), 'dead tunnel: connector down, route online'],
    [mark({ kind: 'upstream', online: true }), 'goes online upstream'], [mark({ kind: 'upstream' }), 'goes offline upstream'],
    [mark({ kind: 'mirror' }), 'mirror'], [mark({ kind: 'touch' }), 'touch'], [mark({ kind: 'confirm' }), 'touched again to confirm'],
    [mark({ kind: 'carried' }), 'hop passed'],
    [small([svg('line', { x1: 13, x2: 13, y1: 0, y2: 16, class: 'end' })]), 'end of the recording'],
    [crowd(), 'several entries, with a count for each kind'],
  ];
  const kinds = new Set(rows.flatMap((row) => row.story.map((item) => item.kind)));
  const outcomes = new Set(rows.flatMap((row) => row.story.map((item) => item.outcome)));
  const rare = [['nudge', 'nudge'], ['delete', 'route deleted'], ['began', 'problem began'], ['ended', 'problem ended']];
  for (const [kind, title] of rare) if (kinds.has(kind)) items.push([mark({ kind, severity: 'error' }), title]);
  for (const [outcome, title] of [['unchanged', 'nothing to change'], ['unknown', 'outcome unknown'], ['failed', 'failed']]) {
    if (outcomes.has(outcome)) items.push([mark(touch(outcome)), title]);
  }
  byId('legend').replaceChildren(...items.map(([picture, title]) => html('li', {}, [picture, title])));
}
