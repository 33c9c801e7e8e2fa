"""Rewrite rules for comparisons, logic and ``Select``."""

# A rule is one line of data; the longest ones do not wrap.

from __future__ import annotations

from .rules import RuleTable

EQ_VECTOR = RuleTable("EQ", vector=True).with_rules("""
broadcast(x, lanes) == broadcast(y, lanes)           => broadcast(x == y, lanes)
""")

EQ = RuleTable("EQ").with_rules("""
c1 == x                                              => x == c1
x - c1 == c2                                         => x == c1 + c2
c1 - x == c2                                         => x == c1 - c2
x + c1 == c2                                         => x == c2 - c1
x * y == 0                                           =>> x == 0 or y == 0
""")

NE_VECTOR = RuleTable("NE", vector=True).with_rules("""
broadcast(x, lanes) != broadcast(y, lanes)           => broadcast(x != y, lanes)
""")

NE = RuleTable("NE").with_rules("""
c1 != x                                              => x != c1
x - c1 != c2                                         => x != c1 + c2
c1 - x != c2                                         => x != c1 - c2
x + c1 != c2                                         => x != c2 - c1
x * y != 0                                           =>> x != 0 and y != 0
""")

LT_VECTOR = RuleTable("LT", vector=True).with_rules("""
broadcast(x, lanes) < broadcast(y, lanes)            => broadcast(x < y, lanes)
ramp(x, s1, lanes) < ramp(y, s1, lanes)              => broadcast(x < y, lanes)
""")

LT = RuleTable("LT").with_rules("""
x + y < x + z || x + y < z + x || y + x < x + z || y + x < z + x => y < z
y - x < z - x                                        => y < z
x - y < x - z                                        => z < y
x < x + z || x < z + x                               => 0 < z
x < x - z                                            => z < 0
x * c1 < y * c1                                      => x < y   if c1 > 0
x * c1 < y * c1                                      => y < x   if c1 < 0
# constant factors: the quotient must round to zero here
x * c2 < c1                                          => x < lit(tdiv(c1 - 1, c2) + 1)   if c1 > 0 and c2 > 0
x * c2 < c1                                          => x < lit(tdiv(c1, c2))           if c1 <= 0 and c2 > 0
x * c2 < c1                                          => lit(tdiv(c1 - 1, c2) - 1) < x   if c1 > 0 and c2 < 0
x * c2 < c1                                          => lit(tdiv(c1, c2)) < x           if c1 <= 0 and c2 < 0
c1 < x * c2                                          => lit(tdiv(c1 + 1, c2) - 1) < x   if c1 < 0 and c2 > 0
c1 < x * c2                                          => lit(tdiv(c1, c2)) < x           if c1 >= 0 and c2 > 0
c1 < x * c2                                          => x < lit(tdiv(c1 + 1, c2) + 1)   if c1 < 0 and c2 < 0
c1 < x * c2                                          => x < lit(tdiv(c1, c2))           if c1 >= 0 and c2 < 0
# truncated division
truncdiv(x, c1) < c2                                 => x < lit(c1 * c2)             if c1 > 0 and c2 > 0
truncdiv(x, c1) < c2                                 => x < lit(c1 * (c2 - 1) + 1)   if c1 > 0 and c2 <= 0
c1 < truncdiv(x, c2)                                 => lit((c1 + 1) * c2 - 1) < x   if c1 >= 0 and c2 > 0
c1 < truncdiv(x, c2)                                 => lit(c1 * c2) < x             if c1 < 0 and c2 > 0
truncdiv(x, c1) * c1 < x                             => 0 < truncmod(x, c1)       if c1 > 0
truncdiv(x, c1) * c1 < x + y                         => 0 < truncmod(x, c1) + y   if c1 > 0
truncdiv(x, c1) * c1 < x - y                         => y < truncmod(x, c1)       if c1 > 0
truncdiv(x + c2, c1) * c1 < x                        => c2 < truncmod(x + c2, c1)       if c1 > 0
truncdiv(x + c2, c1) * c1 < x + y                    => c2 < truncmod(x + c2, c1) + y   if c1 > 0
truncdiv(x + c2, c1) * c1 < x - y                    => y < truncmod(x + c2, c1) + (0 - c2)   if c1 > 0
# floor division
x // c1 < c2                                         => x < lit(c1 * c2)             if c1 > 0
c1 < x // c2                                         => lit((c1 + 1) * c2 - 1) < x   if c2 > 0
x // c1 * c1 < x                                     => 0 < x % c1       if c1 > 0
x // c1 * c1 < x + y                                 => 0 < x % c1 + y   if c1 > 0
x // c1 * c1 < x - y                                 => y < x % c1       if c1 > 0
(x + c2) // c1 * c1 < x                              => c2 < (x + c2) % c1       if c1 > 0
(x + c2) // c1 * c1 < x + y                          => c2 < (x + c2) % c1 + y   if c1 > 0
(x + c2) // c1 * c1 < x - y                          => y < (x + c2) % c1 + (0 - c2)   if c1 > 0
# canonical order, then again
min(x, y) < z                                        =>> x < z or y < z
max(x, y) < z                                        =>> x < z and y < z
z < min(x, y)                                        =>> z < x and z < y
z < max(x, y)                                        =>> z < x or z < y
c1 < x + c2 || c1 - x < c2                           =>> c1 - c2 < x
c1 < c2 - x || x + c1 < c2                           =>> x < c2 - c1
c1 < x - c2                                          =>> c1 + c2 < x
x - c2 < c1                                          =>> x < c1 + c2
x < c1 - y                                           =>> x + y < c1
c1 - x < y                                           =>> c1 < x + y
x < c1 + y                                           =>> x - y < c1
c1 + y < x                                           =>> c1 < x - y
""")

AND_VECTOR = RuleTable("And", vector=True).with_rules("""
broadcast(x, lanes) and broadcast(y, lanes)          => broadcast(x and y, lanes)
""")

AND = RuleTable("And").with_rules("""
x == y and x != y || x != y and x == y               => False
x and not x                                          => False
x <= y and y < x || y < x and x <= y                 => False
x < c1 and c2 < x || c2 < x and x < c1               => False   if c2 + 1 >= c1
x < c1 and c2 <= x || c2 <= x and x < c1             => False   if c2 >= c1
x <= c1 and c2 < x || c2 < x and x <= c1             => False   if c2 >= c1
x <= c1 and c2 <= x || c2 <= x and x <= c1           => False   if c2 > c1
x == c1 and x == c2                                  => False     if c1 != c2
x == c1 and x == c2                                  => x == c1   if c1 == c2
x == c1 and x != c2 || x != c2 and x == c1           => x == c1   if c1 != c2
x == c1 and x != c2 || x != c2 and x == c1           => False     if c1 == c2
# the quotient and the remainder of one number say what it is
x // c2 == c1 and x % c2 == c3 || x % c2 == c3 and x // c2 == c1 =>> x == lit(c1 * c2 + c3)   if 0 <= c3 < c2 or c2 < c3 <= 0
0 <= x - y * c1 and x - y * c1 < c1 || x - y * c1 < c1 and 0 <= x - y * c1 =>> y == x // c1   if c1 > 0
c1 < x - y * c1 and x - y * c1 <= 0                  =>> y == x // c1   if c1 < 0
0 <= x + y * c2 and x + y * c2 < c1 || x + y * c2 < c1 and 0 <= x + y * c2 =>> y == x // c1   if c1 > 0 and c2 == -c1
# a bounded remainder lowers an upper bound to the end of the last stretch it allows
x < c1 and x % c2 < c3                               =>> x < lit(c1 - c2 + c3) and x % c2 < c3   if 0 < c3 <= c2 and c1 % c2 == 0
x < c1 and x % c2 < c3                               =>> x < lit(c1 - c1 % c2 + c3) and x % c2 < c3   if 0 < c3 <= c2 and c1 % c2 > c3
x <= c1 and x % c2 < c3                              =>> x < lit(c1 + 1 - c2 + c3) and x % c2 < c3   if 0 < c3 <= c2 and (c1 + 1) % c2 == 0
x <= c1 and x % c2 < c3                              =>> x < lit(c1 + 1 - c1 % c2 + c3) and x % c2 < c3   if 0 < c3 <= c2 and (c1 + 1) % c2 > c3
x // c2 == c1 and x % c2 < c3 || x % c2 < c3 and x // c2 == c1 =>> lit(c1 * c2) <= x and x < lit(c1 * c2 + c3)   if 0 < c3 <= c2
x // c2 == c1 and x % c2 <= c3 || x % c2 <= c3 and x // c2 == c1 =>> lit(c1 * c2) <= x and x <= lit(c1 * c2 + c3)   if 0 <= c3 < c2
x // c2 == c1 and c3 <= x % c2 || c3 <= x % c2 and x // c2 == c1 =>> lit(c1 * c2 + c3) <= x and x < lit((c1 + 1) * c2)   if 0 <= c3 and c2 > 0
x // c2 == c1 and c3 < x % c2 || c3 < x % c2 and x // c2 == c1 =>> lit(c1 * c2 + c3) < x and x < lit((c1 + 1) * c2)   if -1 <= c3 and c2 > 0
x and (y and z)                                      =>> (x and y) and z
""")

OR_VECTOR = RuleTable("Or", vector=True).with_rules("""
broadcast(x, lanes) or broadcast(y, lanes)           => broadcast(x or y, lanes)
""")

OR = RuleTable("Or").with_rules("""
x == y or x != y || x != y or x == y                 => True
x or not x                                           => True
x <= y or y < x || y < x or x <= y                   => True
x < y or y < x                                       => x != y
x < c1 or c2 < x || c2 < x or x < c1                 => True   if c2 < c1
x <= c1 or c2 < x || c2 < x or x <= c1               => True   if c2 <= c1
x < c1 or c2 <= x || c2 <= x or x < c1               => True   if c2 <= c1
x <= c1 or c2 <= x || c2 <= x or x <= c1             => True   if c2 <= c1 + 1
x != c1 or x != c2                                   => True      if c1 != c2
x != c1 or x != c2                                   => x != c1   if c1 == c2
x != c1 or x == c2 || x == c2 or x != c1             => x != c1   if c1 != c2
x != c1 or x == c2 || x == c2 or x != c1             => True      if c1 == c2
x < y or x == y || x < y or y == x                   =>> x <= y
x == y or x < y || y == x or x < y                   =>> x <= y
x or (y or z)                                        =>> (x or y) or z
""")

NOT = RuleTable("Not").with_rules("""
not_(broadcast(x, lanes))                            => broadcast(not_(x), lanes)
not_(not_(x))                                        => x
not_(x <= y)                                         => y < x
not_(x >= y)                                         => x < y
not_(x < y)                                          => y <= x
not_(x > y)                                          => x <= y
not_(x == y)                                         => x != y
not_(x != y)                                         => x == y
not_(x or y)                                         =>> not_(x) and not_(y)
not_(x and y)                                        =>> not_(x) or not_(y)
""")
