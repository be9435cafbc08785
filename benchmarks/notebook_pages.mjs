// The browser of notebook_traffic.py: opens notebooks of a running JupyterLab in Chromium and measures what reaches the page.
import { printMeasured } from './browser.mjs';

const VIEW = '.jp-gpulayer-view';

/** Bytes of everything that came over the network, WebSocket frames as their text is long. */
async function countBytes(page) {
  const session = await page.context().newCDPSession(page);
  const count = { sockets: 0, http: 0 };
  await session.send('Network.enable');
  session.on('Network.webSocketFrameReceived', ({ response }) => {
    count.sockets += response.opcode === 2 ? Math.floor((response.payloadData.length * 3) / 4) : Buffer.byteLength(response.payloadData);
  });
  session.on('Network.dataReceived', ({ encodedDataLength, dataLength }) => (count.http += encodedDataLength || dataLength));
  return count;
}

async function open(context, { url, token }, notebook) {
  const page = await context.newPage();
  await page.goto(`${url}lab/tree/${notebook}?token=${token}&reset`);
  await page.waitForFunction(() => window.jupyterapp?.shell?.currentWidget?.context?.isReady, null);
  await page.evaluate(async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.context.ready;
    await widget.sessionContext.ready;
  });
  return page;
}

async function runCell(page, index) {
  await page.evaluate(async index => {
    const widget = window.jupyterapp.shell.currentWidget;
    widget.content.activeCellIndex = index;
    await window.jupyterapp.commands.execute('notebook:run-cell');
  }, index);
}

async function save(page) {
  return page.evaluate(async () => {
    const began = performance.now();
    await window.jupyterapp.commands.execute('docmanager:save');
    return performance.now() - began;
  });
}

/** One job's output: the bytes until it is drawn, and the bytes of the same cell's empty run. */
async function traffic(context, asked) {
  const { notebooks, lines, settle } = asked;
  const page = await open(context, asked, notebooks[0]);
  await runCell(page, 0);
  await save(page);
  const count = await countBytes(page);
  const before = { ...count };
  await runCell(page, 1);
  await page.waitForFunction(([view, text]) => [...document.querySelectorAll(view)].some(node => node.textContent.includes(text)), [VIEW, `the last of ${lines}`]);
  await page.waitForTimeout(settle);
  const received = { sockets: count.sockets - before.sockets, http: count.http - before.http };
  const elements = await page.locator(VIEW).locator('*').count();
  await save(page);
  return { received, elements };
}

/** When each line was printed, as it says itself, and when it was on the page. */
async function delay(context, asked) {
  const page = await open(context, asked, asked.notebooks[0]);
  await runCell(page, 0);
  await page.evaluate(() => {
    const seen = (window.seen = new Map());
    const look = node => {
      for (const [, number, printed] of (node.textContent ?? '').matchAll(/sent (\d+) at (\d+\.\d+) end/g)) {
        if (!seen.has(number)) seen.set(number, Date.now() - 1000 * Number(printed));
      }
    };
    new MutationObserver(changes => {
      for (const change of changes) {
        if (change.type === 'characterData') look(change.target);
        change.addedNodes.forEach(look);
      }
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await runCell(page, 1);
  await page.waitForFunction(count => window.seen.size >= count, asked.lines);
  return { delays: await page.evaluate(() => [...window.seen.values()]) };
}

/** How long a save takes while other tabs and outputs are live. */
async function saving(context, asked) {
  const { notebooks, lines: repeats } = asked;
  const pages = [];
  for (const notebook of notebooks) {
    const page = await open(context, asked, notebook);
    const cells = await page.evaluate(() => window.jupyterapp.shell.currentWidget.content.widgets.length);
    for (let index = 0; index < cells; index += 1) {
      await runCell(page, index);
      // Cells that are scrolled out of the page are taken from the document: each is looked at while it is in front.
      if (index) await page.waitForFunction(index => /running \d/.test(window.jupyterapp.shell.currentWidget.content.widgets[index].node.textContent), index);
    }
    pages.push(page);
  }
  const times = [];
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    for (const page of pages) {
      await page.bringToFront();
      times.push(await save(page));
    }
  }
  return { times, outputs: notebooks.length * 4 };
}

await printMeasured(async (context, asked) => {
  try {
    return await { traffic, delay, saving }[asked.action](context, asked);
  } catch (error) {
    for (const page of context.pages()) {
      console.error(await page.locator('.jp-Notebook').first().innerText({ timeout: 1000 }).catch(String));
    }
    throw error;
  }
});
