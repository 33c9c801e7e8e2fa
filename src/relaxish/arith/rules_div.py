"""Rewrite rules for division and remainder, truncating and flooring."""

# A rule is one line of data; the longest ones do not wrap.
# ruff: noqa: E501

from __future__ import annotations

from .rules import RuleTable

DIV = RuleTable("Div").with_rules("""
truncdiv(c1, c2)                                     => lit(tdiv(c1, c2))   if c2 != 0
truncdiv(truncdiv(x, c1), c2)                        => truncdiv(x, c1 * c2)   if c1 > 0 and c2 > 0
truncdiv(truncdiv(x, c1) + c2, c3)                   => truncdiv(x + c1 * c2, c1 * c3)   if c1 > 0 and c2 >= 0 and c3 > 0 and ge(x, 0)
truncdiv(x * c1, c2)                                 => x * lit(c1 // c2)   if c1 > 0 and c2 > 0 and c1 % c2 == 0
truncdiv(x * c1, c2)                                 => truncdiv(x, lit(c2 // c1))   if c1 > 0 and c2 > 0 and c2 % c1 == 0
truncdiv(x, x)                                       => 1
truncdiv(x * c1, x) || truncdiv(c1 * x, x)           => c1
truncdiv(x * c1 + y, c2)                             => x * lit(c1 // c2) + truncdiv(y, c2)   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv(y + x * c1, c2)                             => truncdiv(y, c2) + x * lit(c1 // c2)   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv(min(x * c1, y), c2)                         => min(x * lit(c1 // c2), truncdiv(y, c2))   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv(max(x * c1, y), c2)                         => max(x * lit(c1 // c2), truncdiv(y, c2))   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv(min(y, x * c1), c2)                         => min(truncdiv(y, c2), x * lit(c1 // c2))   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv(max(y, x * c1), c2)                         => max(truncdiv(y, c2), x * lit(c1 // c2))   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y, 0)
truncdiv((x * c1 + y) + z, c2) || truncdiv((y + x * c1) + z, c2) => x * lit(c1 // c2) + truncdiv(y + z, c2)   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y + z, 0)
truncdiv((x * c1 - y) + z, c2)                       => x * lit(c1 // c2) + truncdiv(z - y, c2)   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(z - y, 0)
truncdiv((x * c1 + y) - z, c2)                       => x * lit(c1 // c2) + truncdiv(y - z, c2)   if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0) and ge(y - z, 0)
truncdiv(x + c1, c2)                                 => truncdiv(x, c2) + lit(c1 // c2)   if c1 > 0 and c2 > 0 and c1 % c2 == 0 and ge(x, 0)
truncdiv(x + y, x) || truncdiv(y + x, x)             => truncdiv(y, x) + 1   if ge(x, 0) and ge(y, 0)
truncdiv((x + y) + z, x) || truncdiv((y + x) + z, x) => truncdiv(y + z, x) + 1   if ge(x, 0) and ge(y + z, 0)
truncdiv(y + (z + x), x) || truncdiv(y + (x + z), x) => truncdiv(y + z, x) + 1   if ge(x, 0) and ge(y + z, 0)
truncdiv(x * y, y)                                   => x   if ge(x, 0) and ge(y, 0)
truncdiv(y * x, y)                                   => x   if ge(x, 0) and ge(y, 0)
truncdiv(x * z + y, z) || truncdiv(z * x + y, z)     => x + truncdiv(y, z)   if ge(x, 0) and ge(y, 0) and ge(z, 0)
truncdiv(y + x * z, z) || truncdiv(y + z * x, z)     => truncdiv(y, z) + x   if ge(x, 0) and ge(y, 0) and ge(z, 0)
truncdiv(x, c1)                                      => 0   if c1 > 0 and ge(x, 0) and lt(x, c1)
""")

DIV_VECTOR = RuleTable("Div", vector=True).with_rules("""
truncdiv(broadcast(x, lanes), broadcast(y, lanes))   => broadcast(truncdiv(x, y), lanes)
truncdiv(ramp(b1, c1, lanes), broadcast(c2, lanes))  => ramp(truncdiv(b1, c2), lit(tdiv(c1, c2)), lanes)   if c2 != 0 and c1 % c2 == 0 and ge(b1, 0)
truncdiv(ramp(b1, c1, lanes), broadcast(c2, lanes))  => broadcast(truncdiv(b1, c2), lanes)   if c2 > 0 and aligned(b1, c2) and one_block(b1, c1, c2, lanes) and ge(b1, 0)
""")

MOD_VECTOR = RuleTable("Mod", vector=True).with_rules("""
truncmod(broadcast(x, lanes), broadcast(y, lanes))   => broadcast(truncmod(x, y), lanes)
truncmod(ramp(b1, c1, lanes), broadcast(c2, lanes))  => broadcast(truncmod(b1, c2), lanes)   if c2 != 0 and c1 % c2 == 0 and ge(b1, 0)
truncmod(ramp(b1, c1, lanes), broadcast(c2, lanes))  => ramp(lit(base(b1) % c2), c1, lanes)   if c2 > 0 and aligned(b1, c2) and one_block(b1, c1, c2, lanes) and ge(b1, 0)
truncmod(ramp(b1, c1, lanes), broadcast(c2, lanes))  => truncmod(ramp(lit(base(b1) % c2), c1, lanes), broadcast(c2, lanes))   if c2 > 0 and c1 >= 0 and aligned(b1, c2) and ge(b1, 0)
""")

MOD = RuleTable("Mod").with_rules("""
truncmod(x, c1)                                      =>> truncmod(x, 0 - c1)   if c1 < 0
truncmod(x, x)                                       => 0
truncmod(x * c1, c2)                                 => 0   if c2 != 0 and c1 % c2 == 0
truncmod(x * c1 + y, c2) || truncmod(y + x * c1, c2) => truncmod(y, c2)   if c2 > 0 and c1 % c2 == 0 and ge(x * c1, 0) and ge(y, 0)
truncmod(x + c1, c2)                                 => truncmod(x, c2)   if c2 > 0 and c1 >= 0 and c1 % c2 == 0 and ge(x, 0)
truncmod(x * c1, c2)                                 => truncmod(x, lit(c2 // c1)) * c1   if c1 > 0 and c2 > 0 and c2 % c1 == 0 and ge(x, 0)
truncmod(x, c1)                                      => x   if c1 > 0 and ge(x, 0) and lt(x, c1)
""")

FLOORDIV_VECTOR = RuleTable("FloorDiv", vector=True).with_rules("""
broadcast(x, lanes) // broadcast(y, lanes)           => broadcast(x // y, lanes)
ramp(b1, c1, lanes) // broadcast(c2, lanes)          => ramp(b1 // c2, c1 // c2, lanes)   if c2 != 0 and c1 % c2 == 0
ramp(b1, c1, lanes) // broadcast(c2, lanes)          => broadcast(b1 // c2, lanes)   if c2 > 0 and aligned(b1, c2) and one_block(b1, c1, c2, lanes)
ramp(b1, c1, lanes) // broadcast(c2, lanes)          => broadcast(b1 // c2, lanes)   if c2 > 0 and in_gap(b1, c1, c2, lanes) and one_block(b1, c1, c2, lanes)
""")

FLOORDIV = RuleTable("FloorDiv").with_rules("""
x // c1 // c2                                        => x // (c1 * c2)   if c1 > 0 and c2 > 0
(x // c1 + c2) // c3                                 => (x + c1 * c2) // (c1 * c3)   if c1 > 0 and c3 > 0
""")

FLOORDIV_LATE = RuleTable("FloorDiv").with_rules("""
x // x                                               => 1
x * c1 // x || c1 * x // x                           => c1
(x % 2 + 1) // 2                                     => x % 2
min(x * c1, y) // c2                                 => min(x * (c1 // c2), y // c2)   if c2 > 0 and c1 % c2 == 0
max(x * c1, y) // c2                                 => max(x * (c1 // c2), y // c2)   if c2 > 0 and c1 % c2 == 0
min(y, x * c1) // c2                                 => min(y // c2, x * (c1 // c2))   if c2 > 0 and c1 % c2 == 0
max(y, x * c1) // c2                                 => max(y // c2, x * (c1 // c2))   if c2 > 0 and c1 % c2 == 0
((x * c1 + y) + z) // c2 || ((y + x * c1) + z) // c2 => x * (c1 // c2) + (y + z) // c2   if c2 > 0 and c1 % c2 == 0
((x * c1 + y) + z) // c2                             => x // lit(c2 // c1)   if c1 > 0 and c2 > 0 and c2 % c1 == 0 and eq((y + z) // c1, 0)
((x * c1 - y) + z) // c2 || ((x * c1 + z) - y) // c2 => x * (c1 // c2) + (z - y) // c2   if c2 > 0 and c1 % c2 == 0
(x + c1) // c2                                       => x // c2 + c1 // c2   if c2 > 0 and c1 % c2 == 0
x * c1 // (x * c2)                                   => c1 // c2   if c2 > 0
(x + y) // x || (y + x) // x                         => y // x + 1   if ge(x, 0)
((x + y) + z) // x || ((y + x) + z) // x             => (y + z) // x + 1   if ge(x, 0)
(y + (z + x)) // x || (y + (x + z)) // x             => (y + z) // x + 1   if ge(x, 0)
x * y // y || y * x // y                             => x   if ge(y, 0)
(x * z + y) // z || (z * x + y) // z                 => x + y // z   if ge(z, 0)
(y + x * z) // z || (y + z * x) // z                 => y // z + x   if ge(z, 0)
x * z // (y * z) || z * x // (y * z) || x * z // (z * y) || z * x // (z * y) => x // y   if ge(z, 1)
x // y                                               => 0   if scalable(y) and ge(x, 0) and ge(y, 0) and holds(x < y)
(x * z * c1 + y) // (z * c1)                         => x + y // (z * c1)   if ge(z * c1, 0)
(x - x % c1) // c1                                   => x // c1   if c1 != 0
x // c1                                              => 0   if c1 > 0 and ge(x, 0) and lt(x, c1)
""")

FLOORMOD_VECTOR = RuleTable("FloorMod", vector=True).with_rules("""
broadcast(x, lanes) % broadcast(y, lanes)            => broadcast(x % y, lanes)
ramp(b1, c1, lanes) % broadcast(c2, lanes)           => broadcast(b1 % c2, lanes)   if c2 != 0 and c1 % c2 == 0
ramp(b1, c1, lanes) % broadcast(c2, lanes)           => ramp(lit(base(b1) % c2), c1, lanes)   if c2 > 0 and aligned(b1, c2) and one_block(b1, c1, c2, lanes)
ramp(b1, c1, lanes) % broadcast(c2, lanes)           => ramp(b1 % c2, c1, lanes)   if c2 > 0 and in_gap(b1, c1, c2, lanes) and one_block(b1, c1, c2, lanes)
ramp(b1, c1, lanes) % broadcast(c2, lanes)           => ramp(lit(base(b1) % c2), c1, lanes) % broadcast(c2, lanes)   if c2 > 0 and aligned(b1, c2)
""")

FLOORMOD = RuleTable("FloorMod").with_rules("""
x * c1 % c2                                          => x * (c1 % c2) % c2   if c2 > 0 and (c1 >= c2 or c1 < 0)
(x * c1 + y) % c2                                    => x % lit(c2 // c1) * c1 + y   if c1 > 0 and c2 > 0 and c2 % c1 == 0 and ge(y, 0) and lt(y, c1)
(x * c1 + y) % c2                                    =>> (x * (c1 % c2) + y) % c2   if c2 > 0 and (c1 >= c2 or c1 < 0)
(x + c1) % c2                                        => (x + c1 % c2) % c2   if c2 > 0 and (c1 >= c2 or c1 < 0)
(x + y * c1) % c2                                    =>> (x + y * (c1 % c2)) % c2   if c2 > 0 and (c1 >= c2 or c1 < 0)
x % c1 % c2                                          => x % c2   if c2 > 0 and c1 % c2 == 0
x * c1 % (x * c2)                                    => x * (c1 % c2)   if c2 != 0
x * c1 % x || c1 * x % x                             => 0
x % x                                                => 0
x * y % y || y * x % y                               => 0
(x + y) % x || (y + x) % x                           => y % x
(x + y * z) % z || (x + z * y) % z                   => x % z
(y * z + x) % z || (z * y + x) % z                   => x % z
x % y                                                => x   if scalable(y) and ge(x, 0) and ge(y, 0) and holds(x < y)
# padding up to a multiple
(x + z % y) % y || (z % y + x) % y                   => 0   if eq((x + z) % y, 0)
(x - x % z) % y || (x % z - x) % y                   => 0   if eq(y - z, 0) or eq(y + z, 0)
(x * z * c1 + y) % (z * c1)                          => y % (z * c1)   if ge(z * c1, 0)
x % c1                                               => x   if c1 > 0 and ge(x, 0) and lt(x, c1)
""")
