// Rules that tools hold: strict types, plain names, user text never becomes markup, views know neither JupyterLab nor Lumino.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const MARKUP = [
  "[property.name='innerHTML']",
  "[property.name='outerHTML']",
  "[property.name='insertAdjacentHTML']",
  // Of a document, by whatever name it has; streams have a `write` too.
  "[property.name='write']:matches([object.name=/doc/i], [object.property.name=/doc/i])",
];
const asMarkup = MARKUP.map(which => ({
  selector: `MemberExpression${which}`,
  message: 'User text is never markup: use textContent and createElement.',
}));

/** `private` says what is private. An underscore stands before a parameter that is there for its place alone. */
const PLAIN_NAMES = [
  {
    selector: ['classProperty', 'classMethod', 'accessor', 'parameterProperty', 'parameter', 'variable', 'function'],
    format: null,
    leadingUnderscore: 'forbid',
  },
  { selector: 'parameter', modifiers: ['unused'], format: null, leadingUnderscore: 'allow' },
];

export default tseslint.config(
  {
    ignores: [
      'lib/**',
      '**/node_modules/**',
      'ui-tests/test-results/**',
      'ui-tests/playwright-report/**',
      '**/*.mjs',
      'tests/empty.js',
    ],
  },
  js.configs.recommended,
  ...tseslint.configs.strict,
  {
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/naming-convention': ['error', ...PLAIN_NAMES],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'max-lines': ['error', { max: 400 }],
      'no-restricted-syntax': ['error', ...asMarkup],
      'no-restricted-globals': ['error', 'fetch', 'WebSocket'],
    },
  },
  {
    files: ['src/**/*.ts', 'tests/**/*.ts'],
    rules: { '@typescript-eslint/no-empty-function': 'off', '@typescript-eslint/no-extraneous-class': 'off' },
  },
  {
    files: ['src/views/**/*.ts', 'src/widget.ts', 'src/widget/**/*.ts', 'src/stream/{asking,backoff,subscriptions}.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: ['@jupyterlab/*', '@lumino/*', 'react', 'react-dom'],
              message: 'Views are shared with the widget: plain DOM only.',
            },
          ],
        },
      ],
    },
  },
  // Generated: as long as the protocol is, and with messages that have no field.
  { files: ['src/protocol.ts'], rules: { 'max-lines': 'off', '@typescript-eslint/no-empty-object-type': 'off' } },
  { files: ['tests/**/*.ts'], rules: { '@typescript-eslint/no-non-null-assertion': 'off' } },
  {
    files: ['ui-tests/**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: 'ui-tests/tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      // Strict but for numbers, whose text is what it says.
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        {
          allowAny: false,
          allowBoolean: false,
          allowNever: false,
          allowNullish: false,
          allowNumber: true,
          allowRegExp: false,
        },
      ],
    },
  },
);
