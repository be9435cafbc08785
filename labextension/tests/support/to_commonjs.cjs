// Packages that are ES modules, for jest, which loads CommonJS.
const { transformSync } = require('esbuild');

module.exports = {
  process: (source, path) =>
    transformSync(source, { format: 'cjs', target: 'es2022', loader: 'js', sourcefile: path, sourcemap: 'inline' }),
};
