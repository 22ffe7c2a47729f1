// Package config tests the command line, the environment and the configuration file of the real program
// beside those of a stock etcd.
package config
