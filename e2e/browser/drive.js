// Does each job of the administration page in Chromium, by the roles and names that assistive
// technology sees. It prints a line for each job, and fails at the first that does not work.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const { PAGE_URL: root, SVC_KEY: key, SCRIPT: script = 'on', LOOKS: looks = 'dark 320', CHROMIUM: executablePath } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const context = await browser.newContext({ javaScriptEnabled: script === 'on', reducedMotion: 'reduce' });
const page = await context.newPage();
page.setDefaultTimeout(Number(process.env.PATIENCE ?? 300_000));
const foreign = [];
const sent = [];
page.on('request', (request) => { if (request.method() === 'POST') sent.push(request.url()); });
page.on('request', (request) => { if (!request.url().startsWith(new URL(root).origin)) foreign.push(request.url()); });

const done = (job) => console.log(job);
const fail = (what) => { throw new Error(what); };
const expect = (is, what) => { if (!is) fail(what); };
const role = (name, options) => page.getByRole(name, options);
const see = async (locator, what) => {
  await locator.first().waitFor({ state: 'visible' }).catch(() => fail('not seen: ' + what));
};
const heading = (name) => see(role('heading', { name }), 'heading ' + name);
const open = async (link, title) => {
  await role('navigation', { name: 'Pages' }).getByRole('link', { name: link, exact: true }).click();
  await heading(title ?? link);
  expect((await page.title()).startsWith(title ?? link), 'the title of ' + link);
  expect(await role('link', { name: link, exact: true }).getAttribute('aria-current') === 'page', 'aria-current of ' + link);
};
const sendsNothing = async (move) => {
  await page.waitForLoadState(); // the script has run
  sent.length = 0;
  await move();
  expect(sent.length === 0, 'a form is sent again: ' + sent);
};
const unfold = (summary) => page.locator('summary', { hasText: summary }).first().click();
const row = (table, text) => role('table', { name: table, exact: true }).getByRole('row').filter({ hasText: text });

await page.goto(root);
expect(await page.getByLabel('API key').getAttribute('type') === 'password', 'a password field');
await page.getByLabel('API key').fill('svcu_' + 'x'.repeat(54));
await role('button', { name: 'Sign in' }).click();
await see(role('alert').filter({ hasText: 'not accepted' }), 'the alert of a wrong key');
await page.getByLabel('API key').fill(key);
await page.keyboard.press('Enter');
await heading('Why');
done('signs in');

// Another site leads here: the browser keeps the Strict cookie back. localhost and 127.0.0.1 are two sites.
const chat = new URL('/chat', root).href.replace('127.0.0.1', 'localhost');
await page.route(chat, (route) => route.fulfill({ contentType: 'text/html', body: `<a href="${root}keys?holder=bob">see</a>` }));
await page.goto(chat);
await role('link', { name: 'see' }).click();
await heading('Keys');
expect(await page.getByLabel('Holder', { exact: true }).inputValue() === 'bob', 'the page that the link leads to');
foreign.length = 0;
await page.goto(root);
await heading('Why');
done('follows a link of another site');

await page.keyboard.press('Tab');
expect(await page.evaluate(() => document.activeElement.textContent).catch(() => 'Skip') .then((t) => t.startsWith('Skip')), 'the first tab stop');
await page.getByLabel('Kind').selectOption({ label: 'User' });
await page.getByLabel('Who', { exact: true }).fill('bob');
await page.getByLabel('Action').fill('bank:recall');
await page.getByLabel('Bank').fill('support');
await role('button', { name: 'Explain' }).click();
await heading('Denied');
await see(page.getByText('denied by statement 0 of policy "on-leave"', { exact: false }), 'the reason');
await see(role('figure', { name: 'The way to this decision' }), 'the figure');
await see(row('Statements', 'on-leave'), 'the statement that decides');
await unfold('Show 1 more');
const answer = page.url();
done('explains a denial');

await unfold('Try a change');
await page.getByLabel('Bundle').fill('{"policies":[{"id":"on-leave","document":{"version":"2026-03-24","statements":[]}}]}');
await role('button', { name: 'Preview' }).click();
await heading('With this change: Allowed');
await see(row('Who gains or loses', 'bob'), 'who gains');
await heading('Denied');
done('tries a change');

await open('Who can');
await page.getByLabel('Action').fill('bank:recall');
await page.getByLabel('Bank').fill('support');
await role('button', { name: 'Show' }).click();
const reach = role('table', { name: /^Who can / });
await reach.getByRole('row').filter({ hasText: 'carol' }).getByRole('link', { name: 'allowed' }).first().click();
await heading('Allowed');
await see(role('table', { name: 'Parameters' }), 'the parameters');
done('finds who can');

await open('Access', 'Access: Users');
await row('Users', 'bob').getByRole('link', { name: 'bob' }).click();
await heading('User bob');
await row('Policies', 'on-leave').getByRole('button', { name: 'Detach on-leave' }).click();
await heading('Who gains or loses');
await see(page.getByText('Changes what'), 'the sum');
await role('button', { name: 'Save' }).click();
await see(role('status').filter({ hasText: 'Saved' }), 'that it was saved');
if (script === 'on') { // without, the browser asks whether to send the form again
  await sendsNothing(() => page.goBack());
  await heading('User bob');
  await page.goForward();
}
await role('link', { name: 'Policies', exact: true }).click();
await role('link', { name: 'on-leave', exact: true }).click();
await page.getByLabel('Kind').selectOption({ label: 'User' });
await page.getByLabel('Who', { exact: true }).fill('bob');
await page.getByLabel('Priority').fill('3');
await role('button', { name: 'Attach' }).click();
await role('button', { name: 'Save' }).click();
await see(row('Attachments', 'bob'), 'the attachment');
done('changes access');

await open('Templates');
await see(row('Templates', 'desk'), 'the template');
await role('button', { name: 'Check for updates' }).click();
await see(role('status'), 'that the sources were checked');
await see(row('Templates', 'update available'), 'the update');
await role('link', { name: 'Desk', exact: true }).click();
await heading('Update available');
await see(row('Changes', '/manifest/budget'), 'a change');
await role('button', { name: 'Update', exact: true }).click();
await see(role('status').filter({ hasText: 'Updated' }), 'that it was updated');
await heading('Up to date');
await role('button', { name: 'Go back to version 1' }).click();
await heading('Edited here');
await unfold('Discard local edits…');
await role('button', { name: 'Update and discard local edits' }).click();
await see(role('status').filter({ hasText: 'Updated' }), 'that the edits were discarded');
done('reviews and updates');

await open('Templates');
await role('link', { name: 'acme', exact: true }).click();
await see(role('table', { name: 'Offers' }), 'the offers');
await row('Offers', 'desk').getByRole('textbox').fill('second');
await role('button', { name: 'Install desk' }).click();
await see(role('status').filter({ hasText: 'Installed' }), 'that it was installed');
done('installs');

await open('Keys');
await unfold('Issue a key');
await page.getByLabel('Who', { exact: true }).fill('bob');
await page.getByLabel('Description').fill('from the browser');
await page.getByLabel('Expires').fill('2199-12-31');
await role('button', { name: 'Issue key' }).click();
const issued = await page.getByLabel('New key').inputValue();
expect(/^svcu_\w{54}$/.test(issued), 'the new key');
if (script === 'on') {
  await sendsNothing(() => page.reload());
  await heading('Keys');
}
await page.getByLabel('Holder', { exact: true }).fill('bob');
await page.getByLabel('Which').selectOption({ label: 'All' });
await role('button', { name: 'Show' }).click();
expect(!(await page.content()).includes(issued), 'the new key is shown once');
const prefix = issued.slice(0, 21);
await role('button', { name: 'Disable ' + prefix }).click();
await see(role('button', { name: 'Enable ' + prefix }), 'that it was disabled');
await role('button', { name: 'Enable ' + prefix }).click();
await role('button', { name: 'Revoke ' + prefix }).click();
await role('button', { name: 'Revoke now' }).click();
await see(role('status').filter({ hasText: 'Revoked' }), 'that it was revoked');
done('issues, disables and revokes a key');

await open('Audit');
await page.getByLabel('Actor').fill('admin');
await role('button', { name: 'Show' }).click();
await see(row('Events', 'api_key.revoked'), 'the event');
await page.getByLabel('Since').fill('yesterday');
await role('button', { name: 'Show' }).click();
await see(role('alert').filter({ hasText: 'since' }), 'the alert of a wrong time');
expect((await page.title()).startsWith('Error: Audit'), 'the title of an alert');
await page.emulateMedia({ media: 'print' });
await page.getByLabel('Actor').waitFor({ state: 'hidden' }).catch(() => fail('a form in print'));
await page.emulateMedia({ media: null });
done('reads the audit');

if (script === 'on') {
  await page.goto(root + 'audit');
  await page.getByLabel(/^Filter/).first().fill('api_key.revoked');
  await see(page.getByText(/^\d+ of \d+$/), 'the count of the filter');
  expect(await page.locator('time').first().getAttribute('title'), 'the local time');
  done('filters');
}

const long = 'everything_that_the_desk_has_ever_written_down_and_kept_for_those_who_ask_again_later';
// The texts of tags, prefixes and buttons in tables that take more than one line.
const broken = () => [...document.querySelectorAll('td .tag, td button, th code')].filter((e) => {
  const text = document.createRange();
  text.selectNodeContents(e);
  return e.offsetParent && e.textContent.length < 30 && new Set([...text.getClientRects()].map((box) => Math.round(box.top))).size > 1;
}).map((e) => e.textContent);
const pages = ['why', answer, `why?user_id=admin&action=bank:recall&bank=${long}`, 'access/users/admin', 'who-can?bank=support&action=bank:recall', 'access/users', 'access/users/bob', 'access/groups/staff', 'access/policies/on-leave', 'access/banks/support', 'templates', 'sources', 'sources/acme', 'templates/desk', 'keys', 'keys?holder=bob', 'audit'];
// axe reads each page in every second look: they are in such an order that it sees each scheme and each width.
for (const [n, look] of (script === 'on' ? looks.split(', ') : []).entries()) {
  const [colorScheme, width] = look.split(' ');
  await page.setViewportSize({ width: Number(width), height: 900 });
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  for (const [i, address] of pages.entries()) {
    await page.goto(new URL(address, root).href);
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${address} scrolls sideways at ${width}`);
    const split = await page.evaluate(broken);
    expect(split.length === 0, `${address} breaks ${split} at ${width}`);
    if (looks.includes(',') && (n + i) % 2) continue;
    const found = await page.evaluate(axe + ';axe.run().then((r) => r.violations.map((v) => v.id + " " + v.nodes[0].html))');
    expect(found.length === 0, `${address}, ${look}: ${found}`);
  }
}
done('is accessible');

await page.goto(root);
const kept = await context.cookies();
expect(kept.length === 1 && kept[0].httpOnly && kept[0].sameSite === 'Strict', 'one cookie, closed');
await role('button', { name: 'Sign out' }).click();
await see(page.getByLabel('API key'), 'the sign-in');
await context.addCookies(kept);
await page.goto(root + 'keys');
await see(page.getByLabel('API key'), 'the sign-in, with the old cookie');
done('signs out');

expect(foreign.length === 0, 'requests to other servers: ' + foreign);
process.exit(); // with the browser, which may take long to close
