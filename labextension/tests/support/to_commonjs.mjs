// Packages that are ES modules, for jest, which loads CommonJS.
import { transformSync } from 'esbuild';

export default {
  process: (source, path) =>
    transformSync(source, { format: 'cjs', target: 'es2022', loader: 'js', sourcefile: path, sourcemap: 'inline' }),
};
