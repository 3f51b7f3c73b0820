// Compiles nothing: it carries the precompiled headers that cmake/MeteTargets.cmake describes.
