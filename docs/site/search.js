// Searches the sections of index.js as one types. It sends no request.
const form = document.querySelector('form[role=search]');
const [field, status, list] = ['input', '[role=status]', 'ol'].map((part) => form.querySelector(part));
const most = 12; // results

// score is 0 unless a section has all words. A page counts most when its title has them.
const score = (section, words) => {
  const title = section.title.toLowerCase(), heading = section.heading.toLowerCase(), text = section.text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const points = (title.includes(word) ? (section.anchor ? 1 : 10) : 0) + (heading.includes(word) ? 6 : 0) + (text.includes(word) ? 1 : 0);
    if (points === 0) return 0;
    sum += points;
  }
  return sum;
};

// excerpt returns the text around the first word that it has, with the words marked.
const excerpt = (text, words) => {
  const first = Math.min(...words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0));
  const begin = first > 40 && first < Infinity ? text.indexOf(' ', first - 40) + 1 : 0;
  const shown = document.createElement('span');
  const pattern = new RegExp('(' + words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|') + ')', 'i');
  text.slice(begin, begin + 160).split(pattern).forEach((part, i) => {
    const piece = i % 2 ? document.createElement('mark') : new Text();
    piece.textContent = part;
    shown.append(piece);
  });
  return shown;
};

const show = () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? [] : sections.map((section) => ({ section, points: score(section, words) }))
    .filter((hit) => hit.points > 0).sort((a, b) => b.points - a.points);
  status.textContent = words.length === 0 ? '' : found.length === 0 ? 'Nothing is found' : `${Math.min(found.length, most)} of ${found.length}`;
  list.replaceChildren(...found.slice(0, most).map(({ section }) => {
    const row = document.createElement('li'), link = document.createElement('a');
    link.href = form.dataset.up + section.file + (section.anchor && '#' + section.anchor);
    link.textContent = section.heading ? section.title + ' › ' + section.heading : section.title;
    link.addEventListener('click', close); // a section of the same page
    row.append(link, excerpt(section.text, words));
    return row;
  }));
};
const close = () => { field.value = ''; show(); };

field.addEventListener('input', show);
form.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') { close(); field.focus(); }
});
form.addEventListener('submit', (event) => {
  event.preventDefault();
  list.querySelector('a')?.click();
});
form.hidden = false;
