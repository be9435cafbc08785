// Bundles src/widget.ts with the views and their style into the one file that the kernel hands to an anywidget.
import { build } from 'esbuild';

// A style sheet becomes one text with all that it imports.
const styleAsText = {
  name: 'style-as-text',
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const bundled = await build({
        entryPoints: [path],
        bundle: true,
        minify: true,
        write: false,
        logLevel: 'warning',
      });
      return { contents: bundled.outputFiles[0].text, loader: 'text' };
    });
  },
};

await build({
  entryPoints: ['src/widget.ts'],
  outfile: '../jupyter_ext/gpulayer_jupyter/widgets/static/widget.js',
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  loader: { '.svg': 'text' },
  plugins: [styleAsText],
  logLevel: 'warning',
});
