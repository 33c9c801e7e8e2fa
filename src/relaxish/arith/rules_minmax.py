"""Rewrite rules for ``min`` and ``max``. The two tables mirror each other."""

# A rule is one line of data; the longest ones do not wrap.

from __future__ import annotations

from .rules import RuleTable

MIN_VECTOR = RuleTable("Min", vector=True).with_rules("""
min(broadcast(x, lanes), broadcast(y, lanes))        => broadcast(min(x, y), lanes)
min(min(x, broadcast(y, lanes)), broadcast(z, lanes)) => min(x, broadcast(min(y, z), lanes))
""")

MIN = RuleTable("Min").with_rules("""
min(x, x)                                            => x
min(x + c1, x + c2)                                  => x + lit(c1 if c1 < c2 else c2)
min(x + c1, x) || min(x, x + c1)                     => x          if c1 >= 0
min(x + c1, x) || min(x, x + c1)                     => x + c1     if c1 < 0
min(c1 - x, c2 - x)                                  => lit(c1 if c1 < c2 else c2) - x
# rounding up to a multiple
min((x + c1) // c2 * c2, x)                          => x          if c2 > 0 and c1 + 1 == c2
min(x, (x + c1) // c2 * c2)                          => x          if c2 > 0 and c1 + 1 == c2
min((x + c1) // c2 * c2, max(x, c2)) || min(max(x, c2), (x + c1) // c2 * c2) => max(x, c2)   if c2 > 0 and c1 + 1 == c2 and ge(x, 1)
min(truncdiv(x + c1, c2) * c2, x) || min(x, truncdiv(x + c1, c2) * c2) => x   if c2 > 0 and c1 + 1 == c2
min(truncdiv(x + c1, c2) * c2, max(x, c2)) || min(max(x, c2), truncdiv(x + c1, c2) * c2) => max(x, c2)   if c2 > 0 and c1 + 1 == c2 and ge(x, 1)
min(x, x // c2 * c2)                                 => x // c2 * c2   if c2 > 0
min(x // c2 * c2, x)                                 => x // c2 * c2   if c2 > 0
min(max(x, y), min(x, y)) || min(max(x, y), min(y, x)) => min(x, y)
min(min(x, y), max(x, y)) || min(min(x, y), max(y, x)) => min(x, y)
min(max(x, y), x) || min(max(y, x), x)               => x
min(x, max(x, y)) || min(x, max(y, x))               => x
min(min(x, y), x)                                    => min(x, y)
min(min(x, y), y)                                    => min(x, y)
min(x, min(x, y))                                    => min(x, y)
min(y, min(x, y))                                    => min(x, y)
min(min(min(x, y), z), y)                            => min(min(x, y), z)
min(min(min(min(x, y), z), s1), y)                   => min(min(min(x, y), z), s1)
min(max(x, y), max(x, z))                            => max(min(y, z), x)
min(max(x, y), max(z, x))                            => max(min(y, z), x)
min(max(y, x), max(x, z))                            => max(min(y, z), x)
min(max(y, x), max(z, x))                            => max(min(y, z), x)
min(min(min(min(min(x, y), z), s1), s2), y)          => min(min(min(min(x, y), z), s1), s2)
min(min(x, y), min(x, z))                            => min(min(y, z), x)
min(min(x, y), min(z, x))                            => min(min(y, z), x)
min(min(y, x), min(x, z))                            => min(min(y, z), x)
min(min(y, x), min(z, x))                            => min(min(y, z), x)
min(y + x, z + x)                                    => min(y, z) + x
min(y + x, x + z)                                    => min(y, z) + x
min(x + y, x + z)                                    => min(y, z) + x
min(x + y, z + x)                                    => min(y, z) + x
min(x - y, x - z)                                    => x - max(y, z)
min(y - x, z - x)                                    => min(y, z) - x
min(min(x, c1), c2)                                  => min(x, min(c1, c2))
# division by a positive constant keeps order, by a negative one turns it
min(truncdiv(x, c1), truncdiv(y, c1))                => truncdiv(min(x, y), c1)   if c1 > 0
min(truncdiv(x, c1), truncdiv(y, c1))                => truncdiv(max(x, y), c1)   if c1 < 0
min(x // c1, y // c1)                                => min(x, y) // c1   if c1 > 0
min(x // c1, y // c1)                                => max(x, y) // c1   if c1 < 0
min(x * c1, y * c1)                                  => min(x, y) * c1    if c1 > 0
min(x * c1, y * c1)                                  => max(x, y) * c1    if c1 < 0
min(x * 0, c1)                                       => min(0, c1)
min(x * c1, c2)                                      => min(x, lit(c2 // c1)) * c1   if c1 > 0 and c2 % c1 == 0
min(x * c1, c2)                                      => max(x, lit(c2 // c1)) * c1   if c1 < 0 and c2 % c1 == 0
min(min(x, c1), y)                                   =>> min(min(x, y), c1)
min(c1 - x, c2)                                      =>> c1 - max(x, lit(c1 - c2))   if c2 != 0
""")

MIN_SELECT = RuleTable("Min").with_rules("""
min(select(x, y, z), select(x, s1, s2))              => select(x, min(y, s1), min(z, s2))
""")

MAX_VECTOR = RuleTable("Max", vector=True).with_rules("""
max(broadcast(x, lanes), broadcast(y, lanes))        => broadcast(max(x, y), lanes)
max(max(x, broadcast(y, lanes)), broadcast(z, lanes)) => max(x, broadcast(max(y, z), lanes))
""")

MAX = RuleTable("Max").with_rules("""
max(x, x)                                            => x
max(x + c1, x + c2)                                  => x + lit(c1 if c1 > c2 else c2)
max(x + c1, x) || max(x, x + c1)                     => x + c1     if c1 > 0
max(x + c1, x) || max(x, x + c1)                     => x          if c1 <= 0
max(c1 - x, c2 - x)                                  => lit(c1 if c1 > c2 else c2) - x
max(truncdiv(x + c1, c2) * c2, x) || max(x, truncdiv(x + c1, c2) * c2) => truncdiv(x + c1, c2) * c2   if c2 > 0 and c1 + 1 == c2
max((x + c1) // c2 * c2, x)                          => (x + c1) // c2 * c2   if c2 > 0 and c1 + 1 == c2
max(x, (x + c1) // c2 * c2)                          => (x + c1) // c2 * c2   if c2 > 0 and c1 + 1 == c2
max(x, x // c2 * c2)                                 => x          if c2 > 0
max(x // c2 * c2, x)                                 => x          if c2 > 0
max(min(x, y), max(x, y)) || max(min(x, y), max(y, x)) => max(x, y)
max(max(x, y), min(x, y)) || max(max(x, y), min(y, x)) => max(x, y)
max(min(x, y), x) || max(min(y, x), x)               => x
max(x, min(x, y)) || max(x, min(y, x))               => x
max(max(x, y), x)                                    => max(x, y)
max(max(x, y), y)                                    => max(x, y)
max(x, max(x, y))                                    => max(x, y)
max(y, max(x, y))                                    => max(x, y)
max(max(max(x, y), z), y)                            => max(max(x, y), z)
max(max(max(max(x, y), z), s1), y)                   => max(max(max(x, y), z), s1)
max(max(max(max(max(x, y), z), s1), s2), y)          => max(max(max(max(x, y), z), s1), s2)
max(max(x, y), max(x, z))                            => max(max(y, z), x)
max(max(x, y), max(z, x))                            => max(max(y, z), x)
max(max(y, x), max(x, z))                            => max(max(y, z), x)
max(max(y, x), max(z, x))                            => max(max(y, z), x)
max(min(x, y), min(x, z))                            => min(max(y, z), x)
max(min(x, y), min(z, x))                            => min(max(y, z), x)
max(min(y, x), min(x, z))                            => min(max(y, z), x)
max(min(y, x), min(z, x))                            => min(max(y, z), x)
max(y + x, z + x)                                    => max(y, z) + x
max(y + x, x + z)                                    => max(y, z) + x
max(x + y, x + z)                                    => max(y, z) + x
max(x + y, z + x)                                    => max(y, z) + x
max(x - y, x - z)                                    => x - min(y, z)
max(y - x, z - x)                                    => max(y, z) - x
max(max(x, c1), c2)                                  => max(x, max(c1, c2))
max(truncdiv(x, c1), truncdiv(y, c1))                => truncdiv(max(x, y), c1)   if c1 > 0
max(truncdiv(x, c1), truncdiv(y, c1))                => truncdiv(min(x, y), c1)   if c1 < 0
max(x // c1, y // c1)                                => max(x, y) // c1   if c1 > 0
max(x // c1, y // c1)                                => min(x, y) // c1   if c1 < 0
max(x * c1, y * c1)                                  => max(x, y) * c1    if c1 > 0
max(x * c1, y * c1)                                  => min(x, y) * c1    if c1 < 0
max(x * 0, c1)                                       => max(0, c1)
max(x * c1, c2)                                      => max(x, lit(c2 // c1)) * c1   if c1 > 0 and c2 % c1 == 0
max(x * c1, c2)                                      => min(x, lit(c2 // c1)) * c1   if c1 < 0 and c2 % c1 == 0
max(max(x, c1), y)                                   =>> max(max(x, y), c1)
max(c1 - x, c2)                                      =>> c1 - min(x, lit(c1 - c2))   if c2 != 0
""")

MAX_SELECT = RuleTable("Max").with_rules("""
max(select(x, y, z), select(x, s1, s2))              => select(x, max(y, s1), max(z, s2))
""")
