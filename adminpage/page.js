// The pages work without this script. It adds a filter to long tables and copies texts.
'use strict';

history.replaceState(null, ''); // Back and Reload get the page of a form, and do not send the form again

for (const table of document.querySelectorAll('table[data-filter]')) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 6) continue;
  const label = document.createElement('label');
  label.className = 'filter';
  label.textContent = 'Filter this page';
  const input = document.createElement('input');
  input.type = 'search';
  label.append(input);
  const count = document.createElement('small');
  count.setAttribute('aria-live', 'polite');
  table.before(label, ' ', count);
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length ? shown + ' of ' + rows.length : '';
  });
}

for (const time of document.querySelectorAll('time')) time.title = new Date(time.dateTime).toLocaleString();

for (const field of document.querySelectorAll('[data-copy]')) {
  if (!navigator.clipboard) break;
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(field.value ?? field.href ?? field.textContent);
    button.textContent = 'Copied';
  });
  (field.closest('label') ?? field).after(' ', button);
}
