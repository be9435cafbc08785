// A JupyterLab in which some extensions are not installed, as far as its page can tell.
import type { Page } from '@playwright/test';

interface PageConfig {
  federated_extensions: { name: string }[];
}

/** Takes them out of the page's configuration before JupyterLab reads it. */
export async function withoutExtensions(page: Page, names: readonly string[]): Promise<void> {
  await page.addInitScript(missing => {
    const observer = new MutationObserver(() => {
      const node = document.getElementById('jupyter-config-data');
      if (node?.nextSibling) {
        observer.disconnect();
        const config = JSON.parse(node.textContent ?? '') as PageConfig;
        config.federated_extensions = config.federated_extensions.filter(({ name }) => !missing.includes(name));
        node.textContent = JSON.stringify(config);
      }
    });
    observer.observe(document, { childList: true, subtree: true });
  }, names);
}
