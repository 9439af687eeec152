//go:build !linux

package main

// slackenTimers does nothing: timer slack is Linux's.
func slackenTimers() {}
