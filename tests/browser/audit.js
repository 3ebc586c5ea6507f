// Checks accessibility; returns a sentence for each problem.
const wrong = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const isShown = (element) => element.checkVisibility({ visibilityProperty: true });
const describe = (element) => `<${element.localName} id="${element.id}" class="${element.getAttribute('class') ?? ''}"> ${element.textContent.trim().slice(0, 40)}`;

// Names.
const nameOf = (element) => {
  const ids = (element.getAttribute('aria-labelledby') ?? '').split(/\s+/).filter(Boolean);
  const labels = ids.map((id) => document.getElementById(id)?.textContent ?? '').join(' ');
  const own = element.labels ? [...element.labels].map((label) => label.textContent).join(' ') : '';
  return (labels || element.getAttribute('aria-label') || own || (/^(INPUT|SELECT)$/.test(element.tagName) ? '' : element.textContent)).trim();
};
for (const element of all('button, a, input, select, summary, aside, [role="button"], [role="img"], [role="group"], [role="list"], [role="region"], section')) {
  if (isShown(element) && !nameOf(element)) wrong.push(`no name: ${describe(element)}`);
}
for (const element of all('svg')) {
  if (!element.closest('[aria-hidden="true"]') && !element.getAttribute('role')) wrong.push(`neither hidden nor named: ${describe(element)}`);
}

// References and ids.
const ids = all('[id]').map((element) => element.id);
ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push(`duplicate id: #${id}`));
for (const element of all('[aria-labelledby], label[for]')) {
  const id = element.getAttribute('aria-labelledby') ?? element.getAttribute('for');
  if (!document.getElementById(id)) wrong.push(`dangling reference: ${describe(element)}`);
}

// Structure.
if (!document.documentElement.lang) wrong.push('no language');
if (!document.title) wrong.push('no title');
for (const name of ['main', 'header', 'h1']) if (all(name).length !== 1) wrong.push(`${all(name).length} of ${name}`);
let level = 0;
for (const heading of all('h1, h2, h3, h4').filter(isShown)) {
  const now = Number(heading.localName[1]);
  if (now > level + 1) wrong.push(`h${now} after h${level}: ${describe(heading)}`);
  level = now;
}
for (const row of all('.row')) if (!row.querySelector('[tabindex="0"], [tabindex="-1"]')) wrong.push(`not reachable: ${describe(row)}`);
if (all('#rows [tabindex="0"]').length !== 1) wrong.push('the timeline is not one stop for Tab');

// The contrast of every text with its background. Colours are read as the browser paints them.
const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (color) => {
  paint.clearRect(0, 0, 1, 1);
  paint.fillStyle = color;
  paint.fillRect(0, 0, 1, 1);
  return [...paint.getImageData(0, 0, 1, 1).data];
};
const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const backOf = (element) => {
  for (let it = element; it; it = it.parentElement) {
    const color = rgba(getComputedStyle(it).backgroundColor);
    if (color[3] === 255) return color;
  }
  return rgba(getComputedStyle(document.documentElement).colorScheme === 'dark' ? '#000' : '#fff');
};
/** The band behind an SVG text: the last one drawn there before it. */
const bandOf = (text) => {
  const box = text.getBoundingClientRect();
  for (let it = text.previousElementSibling; it; it = it.previousElementSibling) {
    const band = it.getBoundingClientRect();
    if (it.localName !== 'rect' || band.left > box.left || band.right < box.right || band.top > box.top + 4 || band.bottom < box.bottom - 4) continue;
    const color = getComputedStyle(it).fill;
    // For a pattern, its background.
    const pattern = color.match(/#([\w-]+)/)?.[1];
    return rgba(color.startsWith('url') ? getComputedStyle(document.querySelector(`#${pattern} rect`)).fill : color);
  }
  wrong.push(`no band behind: ${describe(text)}`);
  return backOf(text);
};
let measured = 0;
const compare = (element, front, back) => {
  const [a, b] = [luminance(front), luminance(back)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  measured += 1;
  if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(2)}: ${describe(element)}`);
};
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
for (const element of all('body *')) {
  if (!hasText(element) || !isShown(element) || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/i.test(element.tagName)) continue;
  if (element instanceof SVGElement) {
    const isOnBand = /t-(on|online|offline)\b/.test(element.getAttribute('class') ?? '');
    compare(element, rgba(getComputedStyle(element).fill), isOnBand ? bandOf(element) : backOf(element));
  } else compare(element, rgba(getComputedStyle(element).color), backOf(element));
}
if (measured < 60) wrong.push(`only ${measured} texts were measured`);
return wrong;
