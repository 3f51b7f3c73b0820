// The emulated libcuda.so.1 is mete_emulated_cuda and the engine client, linked whole; there is nothing to add.
