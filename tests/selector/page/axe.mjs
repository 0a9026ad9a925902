// What axe finds on pages, in light and dark and in two widths, as JSON: node axe.mjs CHROMIUM URL...
// Also an error of a page's scripts, and content wider than the window.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const find = createRequire(`${process.env.NODE_PATH.split(":")[0]}/`);
const { chromium } = find("playwright-core");
const axe = readFileSync(find.resolve("axe-core/axe.min.js"), "utf8");
const [executablePath, ...urls] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic"] });
const found = [];
for (const url of urls) for (const [colorScheme, width] of [["light", 1280], ["dark", 390]]) {
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 844 }, bypassCSP: true });
  const page = await context.newPage();
  const where = `${url} ${colorScheme} ${width}`;
  page.on("pageerror", error => found.push({ where, error: String(error) }));
  await page.goto(url);
  await page.waitForTimeout(600);
  await page.evaluate(() => document.querySelectorAll("details").forEach(part => { part.open = true; }));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) found.push({ where, wide });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, help, nodes } of violations) found.push({ where, id, help, nodes: nodes.slice(0, 3).map(node => node.html.slice(0, 200)) });
  await context.close();
}
await browser.close();
console.log(JSON.stringify(found, null, 1));
