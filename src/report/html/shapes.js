// Elements and shapes, shared by the timeline, the legend and the live page.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'text') element.textContent = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  if (children) element.append(...children.filter(Boolean));
  return element;
}
const svg = (name, attributes, children) => fill(document.createElementNS(SVG, name), attributes, children);
const html = (name, attributes, children) => fill(document.createElement(name), attributes, children);
const byId = (id) => document.getElementById(id);

function button(text, onClick, attributes) {
  const made = html('button', { type: 'button', text, ...attributes });
  made.addEventListener('click', onClick);
  return made;
}

/** A text without its end if it is long, cut between words. */
function brief(text, most = 240) {
  if (text.length <= most) return text;
  const space = text.lastIndexOf(' ', most);
  return `${text.slice(0, space > most / 2 ? space : most)} …`;
}

/** A text, folded if it is long: its beginning, and the rest on request. */
function prose(text, attributes) {
  const shown = brief(text);
  if (shown === text) return html('span', { text, ...attributes });
  return html('details', { class: 'fold', ...attributes }, [
    html('summary', { text: shown }), html('span', { text: `… ${text.slice(shown.length - 2).trim()}` }),
  ]);
}

/** Patterns tell states apart without colours. */
function patterns() {
  const pattern = (id, size, children) => svg('pattern', {
    id, width: size, height: size, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)',
  }, children);
  const box = (size, cls) => svg('rect', { width: size, height: size, class: cls });
  const line = (size, cls) => svg('line', { x1: 0, y1: 0, x2: 0, y2: size, class: cls });
  const defs = svg('defs', {}, [
    pattern('hatch', 7, [box(7, 'p-bg'), line(7, 'p-line')]),
    pattern('busy', 4, [box(4, 'p-on'), line(4, 'p-line')]),
    pattern('wrong-part', 6, [box(6, 'p-wrong'), line(6, 'p-wrong-line')]),
    pattern('dead-part', 6, [box(6, 'p-dead'), line(6, 'p-dead-line')]),
  ]);
  return svg('svg', { class: 'offscreen', width: 0, height: 0, 'aria-hidden': 'true', focusable: 'false' }, [defs]);
}

const GLYPHS = {
  mirror: ['path', { d: 'M0-6L6 0L0 6L-6 0Z' }],
  touch: ['path', { d: 'M0-5.5L6 5H-6Z' }],
  confirm: ['path', { d: 'M0-4.5L5 4H-5Z' }],
  nudge: ['rect', { x: -4.5, y: -4.5, width: 9, height: 9 }],
  delete: ['path', { d: 'M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z' }],
  upstream: ['circle', { r: 5 }],
  began: ['path', { d: 'M-3-7H3L7-3V3L3 7H-3L-7 3V-3Z' }],
  ended: ['path', { d: 'M-2.5-5.5H2.5L5.5-2.5V2.5L2.5 5.5H-2.5L-5.5 2.5V-2.5Z' }],
};
const TONES = { upstream: 'ink', confirm: 'hollow' };
const SEVERITIES = { error: 'bad', warning: 'warn', info: 'ink' };

/** The shapes of an entry: by its kind, its state and its outcome. */
function glyph(item) {
  const [name, attributes] = GLYPHS[item.kind] || ['circle', { r: 2.5 }];
  let tone = TONES[item.kind] ?? (GLYPHS[item.kind] ? '' : 'dot');
  if (item.kind === 'upstream' && !item.online) tone += ' hollow';
  if (item.severity) tone = `${SEVERITIES[item.severity]}${item.kind === 'ended' ? ' hollow' : ''}`;
  if (item.actions?.length && item.outcome !== 'applied') tone = { unchanged: 'hollow', unknown: 'open', failed: 'bad' }[item.outcome];
  const shapes = [svg(name, { ...attributes, class: `g ${tone}` })];
  if (item.kind === 'began') shapes.push(svg('path', { class: 'bang', d: 'M0-3.5V.8M0 2V3.6' }));
  if (item.kind === 'upstream' && !item.online) shapes.push(svg('path', { class: 'bar-of', d: 'M-5 0H5' }));
  if (item.kind === 'ended') shapes.push(svg('path', { class: 'check', d: 'M-2.8.2L-.8 2.4L2.9-2.2' }));
  if (item.outcome === 'failed') shapes.push(svg('path', { class: 'over', d: 'M-7-7L7 7M-7 7L7-7' }));
  return shapes;
}
