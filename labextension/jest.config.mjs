// Tests of models and views in jsdom; what needs a real browser lives in ui-tests/.
const esm = [
  '@jupyterlab',
  '@jupyter',
  '@lumino',
  'lib0',
  'y-protocols',
  'yjs',
  'y-websocket',
  'nanoid',
  '@microsoft',
  'exenv-es6',
  'marked',
  'vscode-ws-jsonrpc',
  'uplot',
  'd3-.*',
  'internmap',
  'delaunator',
  'robust-predicates',
].join('|');

export default {
  testEnvironment: 'jsdom',
  testMatch: ['<rootDir>/tests/**/*.spec.ts'],
  moduleFileExtensions: ['ts', 'js', 'mjs', 'json', 'node'],
  transform: {
    '\\.ts$': ['ts-jest', { tsconfig: '<rootDir>/tsconfig.test.json', diagnostics: false, isolatedModules: true }],
    '\\.(m?js)$': '<rootDir>/tests/support/to_commonjs.mjs',
  },
  moduleNameMapper: { '\\.css$': '<rootDir>/tests/empty.js', '\\.svg$': '<rootDir>/tests/svg.mjs' },
  transformIgnorePatterns: [`/node_modules/(?!(${esm})/)`],
  setupFiles: ['<rootDir>/tests/jsdom.ts'],
};
