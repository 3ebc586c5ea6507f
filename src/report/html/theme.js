// The colours: the system's, until somebody chooses.

function addThemeHandlers() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);
  const name = () => { byId('theme').textContent = isDark() ? 'Light colours' : 'Dark colours'; };
  byId('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; name(); });
  dark.addEventListener('change', name);
  name();
}
