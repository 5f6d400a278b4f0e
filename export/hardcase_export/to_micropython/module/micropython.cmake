# A user C module: idf.py -DUSER_C_MODULES=FILE with the path of this file
add_library(usermod_hardcase INTERFACE)
target_sources(usermod_hardcase INTERFACE ${CMAKE_CURRENT_LIST_DIR}/hardcase_kernel.c)
target_include_directories(usermod_hardcase INTERFACE ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(usermod INTERFACE usermod_hardcase)
