//go:build !linux

package main

// slackenTimers is for Linux.
func slackenTimers() {}
