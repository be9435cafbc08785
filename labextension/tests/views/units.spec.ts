import { moment, age, bytes, clock, count, duration, ranges, took, value } from '../../src/views/units';

const THIN = '\u2009';

test.each([
  [-3, '0:00'],
  [42.9, '0:42'],
  [490, '8:10'],
  [3723, '1:02:03'],
])('a clock shows %p s as %p', (seconds, text) => {
  expect(clock(seconds)).toBe(text);
});

test.each([
  [0.0008, '0.8 ms'],
  [0.043, '43 ms'],
  [2.414, '2.41 s'],
  [125, '125 s'],
  [4200, `4${THIN}200 s`],
])('a step of %p s is %p', (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});

test.each([
  [0.0925, '0.09 s'],
  [4.28, '4.3 s'],
  [12.3, '12 s'],
  [62, '1:02'],
])('what took %p s is said as %p', (seconds, text) => {
  expect(took(seconds)).toBe(text);
});

test.each([
  [8, '8 s'],
  [490, '8 min'],
  [3 * 3600, '3 h'],
  [200_000, '2 d'],
])('%p s ago is %p', (seconds, text) => {
  expect(age(seconds)).toBe(text);
});

test('thousands are apart by a thin space', () => {
  expect(count(999)).toBe('999');
  expect(count(1204)).toBe(`1${THIN}204`);
  expect(count(2_000_000)).toBe(`2${THIN}000${THIN}000`);
});

test('sizes are in thousands', () => {
  expect([bytes(812), bytes(1500), bytes(20_000_000), bytes(3.2e9)]).toEqual(['812 B', '1.5 kB', '20 MB', '3.2 GB']);
});

test.each([
  [0, '0'],
  [0.131234, '0.1312'],
  [-2.5, '−2.5'],
  [1250, `1${THIN}250`],
  [19_412.7, `19${THIN}413`],
  [3.2e-5, '3.2e−5'],
  [1.5e12, '1.5e12'],
  [NaN, 'NaN'],
  [-Infinity, '−∞'],
])('the value %p is written as %p', (number, text) => {
  expect(value(number)).toBe(text);
});

test('numbers in a row are a range, and of very many the first are named', () => {
  expect(ranges([])).toBe('');
  expect(ranges([0, 1])).toBe('0, 1');
  expect(ranges([0, 1, 2, 5, 7, 8, 9])).toBe('0–2, 5, 7–9');
  const even = Array.from({ length: 40 }, (_, index) => index * 2);
  expect(ranges(even)).toBe(`${even.slice(0, 16).join(', ')} … (40 in all)`);
});

test('a moment of today has its second, one of another day its date', () => {
  const at = new Date(2026, 10, 29, 14, 3, 22).getTime() / 1000;
  expect(moment(at, at + 60)).toBe('14:03:22');
  expect(moment(at, at + 86_400)).toMatch(/29.* 14:03$/);
});
