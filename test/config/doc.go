// Package config tests the command line, the environment and the configuration file of the real
// program with those of a stock etcd.
package config
