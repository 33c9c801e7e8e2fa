"""Rewrite rules for sums, differences and products. Notation: see :mod:`relaxish.arith.rules`."""

# A rule is one line of data; the longest ones do not wrap.

from __future__ import annotations

from .rules import RuleTable

ADD_VECTOR = RuleTable("Add", vector=True).with_rules("""
ramp(b1, s1, lanes) + ramp(b2, s2, lanes)            => ramp(b1 + b2, s1 + s2, lanes)
ramp(b1, s1, lanes) + broadcast(x, lanes)            => ramp(b1 + x, s1, lanes)
broadcast(x, lanes) + ramp(b1, s1, lanes)            => ramp(x + b1, s1, lanes)
broadcast(x, lanes) + broadcast(y, lanes)            => broadcast(x + y, lanes)
x + broadcast(f1, lanes)                             => x   if f1 == 0.0
""")

ADD = RuleTable("Add").with_rules("""
# cancellation
(x - y) + y                                          => x
x + (y - x)                                          => y
(x - y) + (y - z)                                    => x - z
(x - y) + (z - x)                                    => z - y
(x - y) + (y + z) || (x - y) + (z + y)               => x + z
min(x, y - z) + z                                    => min(x + z, y)
min(x - z, y) + z                                    => min(x, y + z)
max(x, y - z) + z                                    => max(x + z, y)
max(x - z, y) + z                                    => max(x, y + z)
min(x, y + z * c1) + z * c2                          => min(x + z * c2, y)   if c1 == -c2
max(x, y + z * c1) + z * c2                          => max(x + z * c2, y)   if c1 == -c2
min(y + z * c1, x) + z * c2                          => min(x + z * c2, y)   if c1 == -c2
max(y + z * c1, x) + z * c2                          => max(x + z * c2, y)   if c1 == -c2
max(x, y) + min(x, y) || max(x, y) + min(y, x)       => x + y
min(x, y) + max(x, y) || min(x, y) + max(y, x)       => x + y
min(x, y + c1) + c2                                  => min(x + c2, y)   if c1 == -c2
min(x + c1, y) + c2                                  => min(x, y + c2)   if c1 == -c2
max(x, y + c1) + c2                                  => max(x + c2, y)   if c1 == -c2
max(x + c1, y) + c2                                  => max(x, y + c2)   if c1 == -c2
# constants
(x + c1) + c2                                        => x + (c1 + c2)
# common factors
x + x                                                => x * 2
x * y + x || y * x + x || x + y * x || x + x * y     => x * (y + 1)
x * y + x * z || y * x + x * z || x * y + z * x || y * x + z * x => x * (y + z)
# division and remainder
truncdiv(x, c1) * c1 + truncmod(x, c1)               => x
x // y * y + x % y || y * (x // y) + x % y           => x
x % y + x // y * y || x % y + y * (x // y)           => x
(x % c2 + c1) // c2 + x // c2                        => (x + c1) // c2   if c2 > 0
x // 2 + x % 2                                       =>> (x + 1) // 2
# the two values of a remainder by two; one is never turned into the other, which would bring in negative factors
(x + c1) % 2 + x % 2 || x % 2 + (x + c1) % 2         => 1   if c1 % 2 == 1
# canonical order, then again
(c1 - x) + c2                                        => (c1 + c2) - x
x + (c1 - y)                                         =>> (x - y) + c1
(c1 - y) + x                                         =>> (x - y) + c1
x + c1 + y                                           =>> (x + y) + c1
x + (c1 + y)                                         =>> (x + y) + c1
x + max(y, z)                                        =>> max(y, z) + x
x + min(y, z)                                        =>> min(y, z) + x
truncmod(y, c1) + x * c1                             =>> x * c1 + truncmod(y, c1)
y % c1 + x * c1                                      =>> x * c1 + y % c1
""")

ADD_SELECT = RuleTable("Add").with_rules("""
select(x, b1, b2) + select(x, s1, s2)                => select(x, b1 + s1, b2 + s2)
""")

SUB_VECTOR = RuleTable("Sub", vector=True).with_rules("""
ramp(b1, s1, lanes) - ramp(b2, s2, lanes)            => ramp(b1 - b2, s1 - s2, lanes)
ramp(b1, s1, lanes) - broadcast(x, lanes)            => ramp(b1 - x, s1, lanes)
broadcast(x, lanes) - ramp(b1, s1, lanes)            => ramp(x - b1, 0 - s1, lanes)
broadcast(x, lanes) - broadcast(y, lanes)            => broadcast(x - y, lanes)
""")

SUB = RuleTable("Sub").with_rules("""
(x + y) - y                                          => x
(x + y) - x                                          => y
x - (y + x) || x - (x + y)                           => 0 - y
min(x, y) - x                                        => min(0, y - x)
min(x, y) - y                                        => min(x - y, 0)
max(x, y) - x                                        => max(0, y - x)
max(x, y) - y                                        => max(x - y, 0)
x - max(x, y)                                        => min(0, x - y)
y - max(x, y)                                        => min(y - x, 0)
x - min(x, y)                                        => max(0, x - y)
y - min(x, y)                                        => max(y - x, 0)
# common factors
x - x                                                => 0
x * y - x || y * x - x                               => x * (y + -1)
x - y * x || x - x * y                               => x * (1 - y)
x * y - x * z || y * x - x * z || x * y - z * x || y * x - z * x => x * (y - z)
# constants
(x + c1) - c2                                        => x + (c1 - c2)
(c1 - x) - (c2 - y)                                  => (y - x) + (c1 - c2)
# four operands
(x + y) - (x + z) || (x + y) - (z + x)               => y - z
(y + x) - (z + x) || (y + x) - (x + z)               => y - z
min(x + y, z) - x || min(y + x, z) - x               => min(y, z - x)
min(z, x + y) - x || min(z, y + x) - x               => min(z - x, y)
max(x + y, z) - x || max(y + x, z) - x               => max(y, z - x)
max(z, x + y) - x || max(z, y + x) - x               => max(z - x, y)
x - min(x + y, z) || x - min(y + x, z)               => max(0 - y, x - z)
x - min(z, x + y) || x - min(z, y + x)               => max(x - z, 0 - y)
x - max(x + y, z) || x - max(y + x, z)               => min(0 - y, x - z)
x - max(z, x + y) || x - max(z, y + x)               => min(x - z, 0 - y)
min(x, y) - min(y, x)                                => 0
max(x, y) - max(y, x)                                => 0
min(b1, b2) - min(s1, s2)                            => b1 - s1   if eq((b1 - s1) - (b2 - s2), 0)
min(b1, b2) - min(s1, s2)                            => b1 - s2   if eq((b1 - s2) - (b2 - s1), 0)
max(b1, b2) - max(s1, s2)                            => b1 - s1   if eq((b1 - s1) - (b2 - s2), 0)
max(b1, b2) - max(s1, s2)                            => b1 - s2   if eq((b1 - s2) - (b2 - s1), 0)
# truncated division
x - truncdiv(x, c1) * c1                             => truncmod(x, c1)   if c1 != 0
truncdiv(x, c1) * c1 - x                             => 0 - truncmod(x, c1)   if c1 != 0
x - truncdiv(x + y, c1) * c1                         => truncmod(x + y, c1) - y   if c1 != 0
truncdiv(x + y, c1) * c1 - x                         => y - truncmod(x + y, c1)   if c1 != 0
x - truncdiv(x - y, c1) * c1                         => truncmod(x - y, c1) + y   if c1 != 0
truncdiv(x - y, c1) * c1 - x                         => 0 - truncmod(x - y, c1) - y   if c1 != 0
x * c2 - truncdiv(x, c1) * c3                        => truncmod(x, c1) * c2   if c1 != 0 and c3 == c1 * c2
truncdiv(x, c1) * c3 - x * c2                        => truncmod(x, c1) * (0 - c2)   if c1 != 0 and c3 == c1 * c2
x * c2 - truncdiv(x + y, c1) * c3                    => (truncmod(x + y, c1) - y) * c2   if c1 != 0 and c3 == c1 * c2
truncdiv(x + y, c1) * c3 - x * c2                    => (y - truncmod(x + y, c1)) * c2   if c1 != 0 and c3 == c1 * c2
x * c2 - truncdiv(x - y, c1) * c3                    => (truncmod(x - y, c1) + y) * c2   if c1 != 0 and c3 == c1 * c2
truncdiv(x - y, c1) * c3 - x * c2                    => (0 - truncmod(x - y, c1) - y) * c2   if c1 != 0 and c3 == c1 * c2
truncdiv(x + c1, c3) - truncdiv(x + c2, c3)          => truncdiv(truncmod(x + c2, c3) + (c1 - c2), c3)   if ge(x, -c2) and c1 >= c2 and c3 > 0
truncdiv(x + c1, c3) - truncdiv(x, c3)               => truncdiv(truncmod(x, c3) + c1, c3)   if ge(x, 0) and c1 >= 0 and c3 > 0
# halves
(x + c1) // 2 - (x + c2) // 2                        =>> x % 2 * lit(c1 % 2 - c2 % 2) + lit(c1 // 2 - c2 // 2)
x // 2 - (x + c2) // 2                               =>> x % 2 * lit(-(c2 % 2)) - lit(c2 // 2)
(x + c1) // 2 - x // 2                               =>> x % 2 * lit(c1 % 2) + lit(c1 // 2)
(x + 1) // 2 - x % 2                                 =>> x // 2
# floor division
x - x // c1 * c1                                     => x % c1   if c1 != 0
x // c1 * c1 - x                                     => 0 - x % c1   if c1 != 0
x - (x + y) // c1 * c1                               => (x + y) % c1 - y   if c1 != 0
(x + y) // c1 * c1 - x                               => y - (x + y) % c1   if c1 != 0
x - (x - y) // c1 * c1                               => (x - y) % c1 + y   if c1 != 0
(x - y) // c1 * c1 - x                               => 0 - (x - y) % c1 - y   if c1 != 0
x * c2 - x // c1 * c3                                => x % c1 * c2   if c1 != 0 and c3 == c1 * c2
x // c1 * c3 - x * c2                                => x % c1 * (0 - c2)   if c1 != 0 and c3 == c1 * c2
x * c2 - (x + y) // c1 * c3                          => ((x + y) % c1 - y) * c2   if c1 != 0 and c3 == c1 * c2
(x + y) // c1 * c3 - x * c2                          => (y - (x + y) % c1) * c2   if c1 != 0 and c3 == c1 * c2
x * c2 - (x - y) // c1 * c3                          => ((x - y) % c1 + y) * c2   if c1 != 0 and c3 == c1 * c2
(x - y) // c1 * c3 - x * c2                          => (0 - (x - y) % c1 - y) * c2   if c1 != 0 and c3 == c1 * c2
(x + c1) // c3 - (x + c2) // c3                      => ((x + c2 % c3) % c3 + (c1 - c2)) // c3   if c3 > 0
(x + c1) // c3 - x // c3                             => (x % c3 + c1) // c3   if c3 > 0
# canonical order, then again
x - c1                                               => x + (0 - c1)   if fits(x, -c1)
(x + c1) - y                                         =>> (x - y) + c1
c1 - (x + c2)                                        =>> (c1 - c2) - x
x - (y + c1)                                         =>> (x - y) + (0 - c1)
x - (y - z)                                          =>> (x + z) - y
x - y * c1                                           =>> x + y * (0 - c1)
""")

# Differences of other types than indices; each drops an operand, which must have no effects.
SUB_OTHER = RuleTable("Sub").with_rules("""
x - x                                                => 0   if droppable(x)
(x + y) - y                                          => x         if droppable(y)
(x + y) - x                                          => y         if droppable(x)
x - (y + x) || x - (x + y)                           => 0 - y   if droppable(x)
""")

SUB_SELECT = RuleTable("Sub").with_rules("""
select(x, b1, b2) - select(x, s1, s2)                => select(x, b1 - s1, b2 - s2)
select(x, y, z) - z                                  => select(x, y - z, 0)
select(x, y, z) - y                                  => select(x, 0, z - y)
""")

MUL_VECTOR = RuleTable("Mul", vector=True).with_rules("""
broadcast(x, lanes) * broadcast(y, lanes)            => broadcast(x * y, lanes)
ramp(b1, s1, lanes) * broadcast(x, lanes)            => ramp(b1 * x, s1 * x, lanes)
broadcast(x, lanes) * ramp(b1, s1, lanes)            => ramp(b1 * x, s1 * x, lanes)
broadcast(f1, lanes) * x                             => broadcast(f1, lanes)   if f1 == 0.0
""")

MUL = RuleTable("Mul").with_rules("""
(x + c1) * c2                                        => x * c2 + c1 * c2
(x * c1) * c2                                        => x * (c1 * c2)
(x - x % c2) // c1 * c1                              => x - x % c2   if c1 == -c2
min(x, y) * max(x, y) || max(x, y) * min(x, y)       => x * y
(x - y) * c1                                         =>> (y - x) * (0 - c1)   if c1 < 0
x * (c1 * y)                                         =>> (x * y) * c1
c1 * x                                               =>> x * c1
""")
