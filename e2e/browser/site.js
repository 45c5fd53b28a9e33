// Reads the site of the documentation in Chromium, from a disk. It prints a line for each thing that
// works, and fails at the first that does not.
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const { SITE: site, ONLY: only = '', CHROMIUM: executablePath, PATIENCE: patience = 300_000 } = process.env;
const root = pathToFileURL(site + '/').href;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const names = readdirSync(site, { recursive: true }).filter((name) => name.endsWith('.html') && name.includes(only)).sort();

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const page = await (await browser.newContext({ reducedMotion: 'reduce' })).newPage();
page.setDefaultTimeout(Number(patience));
const foreign = [], broken = [];
page.on('request', (request) => { if (!request.url().startsWith(root) && !request.url().startsWith('data:')) foreign.push(request.url()); });
page.on('requestfailed', (request) => broken.push(request.url()));
page.on('pageerror', (error) => broken.push(error.message));

const done = (what) => console.log(what);
const expect = (is, what) => { if (!is) throw new Error(what); };
const search = page.getByRole('searchbox', { name: 'Search' });
const results = page.getByRole('search').getByRole('link');

await page.goto(root + 'index.html');
await search.fill('postgresql failover');
await results.first().waitFor();
expect((await results.allTextContents()).some((text) => /PostgreSQL/.test(text)), 'a page is not found by its words');
await search.fill('(no.such*word');
await page.getByRole('status').filter({ hasText: 'Nothing is found' }).waitFor();
await search.fill('glossary');
await page.keyboard.press('Enter');
await page.getByRole('heading', { name: 'Glossary', level: 1 }).waitFor();
expect(page.url() === root + 'docs/glossary.html', 'search leads to ' + page.url());
await search.fill('the sealing key');
await results.filter({ hasText: 'The sealing key' }).first().click();
expect(page.url().endsWith('docs/howto/secrets.html#the-sealing-key'), 'search leads to ' + page.url());
done('searches');

await page.setViewportSize({ width: 1280, height: 900 });
await page.getByRole('navigation', { name: 'Pages' }).getByText('Explanation').click();
await page.getByRole('link', { name: 'How a request goes', exact: true }).click();
const figure = page.locator('svg text', { hasText: 'Authenticate' });
await figure.waitFor();
expect(await figure.evaluate((text) => { getSelection().selectAllChildren(text); return String(getSelection()); }) === 'Authenticate', 'the text of a diagram is not selected');
const ink = () => figure.evaluate((text) => getComputedStyle(text).fill);
await page.emulateMedia({ colorScheme: 'light' });
const light = await ink();
await page.emulateMedia({ colorScheme: 'dark' });
expect(light !== await ink(), 'a diagram is the same in light and dark');
done('shows diagrams');

await page.emulateMedia({ media: 'print', colorScheme: 'light' });
expect(await search.isHidden() && await page.getByRole('navigation').isHidden(), 'the navigation is printed');
await page.emulateMedia({ media: null });
done('prints');

// Each page has the same style, so each is read in one of the four looks.
const faults = [];
for (const [i, name] of names.entries()) {
  const colorScheme = i % 2 ? 'dark' : 'light', width = i % 4 < 2 ? 390 : 1280;
  await page.setViewportSize({ width: 390, height: 900 });
  await page.emulateMedia({ colorScheme });
  await page.goto(new URL(name, root).href);
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) faults.push(`${name} scrolls sideways`);
  await page.setViewportSize({ width, height: 900 });
  const found = await page.evaluate(axe + ';axe.run({ preload: false }).then((r) => r.violations.map((v) => v.id + " " + v.nodes[0].html))');
  if (found.length > 0) faults.push(`${name}, ${colorScheme} ${width}: ${found}`);
}
expect(faults.length === 0, faults.join('\n'));
done('is accessible');

expect(foreign.length === 0, 'requests to others: ' + foreign);
expect(broken.length === 0, 'broken: ' + broken);
process.exit(); // with the browser, which may take long to close
