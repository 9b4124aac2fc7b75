/* What the guard needs of others and gives to them. */
#ifndef ZEROUTE_GUARD_H
#define ZEROUTE_GUARD_H
