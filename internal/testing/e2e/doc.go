// Package e2e tests the whole road: the real programs, started as an operator starts them, and used as renters and
// hosts use them, over the network.
//
// What always holds:
//   - Programs under test run as processes of their own, built by `make build` ($MUSTER_BIN) or, where that is not set,
//     by the tests. Nothing of them runs inside the test.
//   - A test that only rents and looks shares one platform with the others. Tests that break things have theirs: one
//     for each, or one for several in turn.
//   - After each platform's end the machine is searched for what it may have left: processes, containers, networks,
//     firewall tables. Anything found fails the test.
//
// The package has no code of its own.
package e2e
